/**
 * Whether a failed turn is tried again.
 *
 * Only while its caller has got nothing of the answer, and only when the router says that it may be, after the time that the router
 * names, or when the connection broke before anything was heard of the turn. All turns of a client share a budget besides: in an outage,
 * when no turn completes, it is soon used up, and the client tries each turn once.
 */

import type { TidegateError } from "./errors.js";

/** Tries of a turn after its first. */
export const DEFAULT_RETRIES = 2;

/** A router that asks for more time than this is not waited for: the caller is told. */
const LONGEST_WAIT_MS = 10_000;
/** Callers who failed together come back apart: up to this share of the wait is added. */
const SPREAD = 0.2;
/** Before a new connection is tried where one broke or did not come about. */
const RECONNECT_MS = 100;
const UNHEARD = new Set(["UNREACHABLE", "STREAM_LOST"]);
const RETRIED = new Set(["UNAVAILABLE", "RESOURCE_EXHAUSTED"]);

/** Retries that the turns of a client have left: `most` at the beginning, and one more for each ten turns that complete. */
export class RetryBudget {
  readonly #most: number;
  #left: number;

  constructor(most = 50) {
    this.#most = this.#left = most;
  }

  /** Takes a retry; tells whether there was one. */
  take(): boolean {
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }

  /** A turn has completed. */
  earn(): void {
    this.#left = Math.min(this.#most, this.#left + 0.1);
  }
}

/** Milliseconds until a try after this failure; undefined when there should be none. `heard`: the router has said something of the turn. */
export function retryDelay(error: TidegateError, heard: boolean): number | undefined {
  const delay = UNHEARD.has(error.reason) && !heard ? RECONNECT_MS : error.retryAfterMs;
  if (delay === undefined || delay > LONGEST_WAIT_MS || !RETRIED.has(error.code)) return undefined;
  return delay * (1 + SPREAD * Math.random());
}

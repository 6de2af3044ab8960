/**
 * What a call or a turn can fail with.
 *
 * The class says who must act: whoever wrote the request, whoever gives access, or nobody but time. `reason` says what happened. Failures
 * that no router told have reasons too: UNREACHABLE, STREAM_LOST, DEADLINE_EXCEEDED, TOKEN_UNAVAILABLE, OUTPUT_INCOMPLETE, OUTPUT_INVALID
 * and TOO_MANY_ROUNDS.
 */

import type { status } from "@grpc/grpc-js";

/** Canonical status codes by name, `"UNAVAILABLE"` for example. */
export type Code = keyof typeof status;

/** One field that is wrong, its path as in `messages[1].content`, and what would be right. */
export interface Violation {
  readonly field: string;
  readonly description: string;
}

/** One limit that is used up: whose, and which. */
export interface QuotaViolation {
  readonly subject: string;
  readonly description: string;
}

/** What an error tells besides code, reason and message. */
export interface ErrorFacts {
  readonly requestId?: string;
  readonly violations?: readonly Violation[];
  readonly quotaViolations?: readonly QuotaViolation[];
  readonly retryAfterMs?: number | undefined;
  readonly cause?: unknown;
}

/** A call or turn failed. */
export class TidegateError extends Error {
  /** Canonical status code. */
  readonly code: Code;
  /** Stable UPPER_SNAKE reason; `""` when a stranger answered: no router, and not this client. */
  readonly reason: string;
  /** What to quote to support; `""` when no router told the failure. */
  readonly requestId: string;
  /** The wrong fields. */
  readonly violations: readonly Violation[];
  /** The limits that are used up. */
  readonly quotaViolations: readonly QuotaViolation[];
  /** When to try again, in milliseconds; undefined when that is of no use. */
  readonly retryAfterMs: number | undefined;

  constructor(code: Code, reason: string, message: string, facts: ErrorFacts = {}) {
    super(reason ? `${code} ${reason}: ${message}` : `${code}: ${message}`, { cause: facts.cause });
    this.name = new.target.name;
    this.code = code;
    this.reason = reason;
    this.requestId = facts.requestId ?? "";
    this.violations = facts.violations ?? [];
    this.quotaViolations = facts.quotaViolations ?? [];
    this.retryAfterMs = facts.retryAfterMs;
  }
}

/** The request must change; `violations` name what is wrong with it. */
export class RequestInvalid extends TidegateError {}

/** Credentials are missing or wrong, or do not allow this. */
export class AccessDenied extends TidegateError {}

/** A quota is used up, or all places are taken. With `retryAfterMs` there will be room after that time. */
export class Exhausted extends TidegateError {}

/** The router or all its workers are down or going. Says nothing about the request. */
export class Unavailable extends TidegateError {}

/** The stream ended before the turn did: its answer is incomplete. */
export class StreamLost extends Unavailable {}

/** The caller's time is over; the turn was cancelled. */
export class DeadlineExceeded extends TidegateError {}

/** The answer ended too early, or is not of the type asked for: there is no value, and no call to carry out. */
export class OutputInvalid extends TidegateError {}

/** The model still calls tools after all the rounds that it may have. */
export class TooManyRounds extends TidegateError {}

const CLASSES: Partial<Record<Code, typeof TidegateError>> = {
  INVALID_ARGUMENT: RequestInvalid,
  NOT_FOUND: RequestInvalid,
  UNIMPLEMENTED: RequestInvalid,
  OUT_OF_RANGE: RequestInvalid,
  UNAUTHENTICATED: AccessDenied,
  PERMISSION_DENIED: AccessDenied,
  RESOURCE_EXHAUSTED: Exhausted,
  UNAVAILABLE: Unavailable,
  DEADLINE_EXCEEDED: DeadlineExceeded,
};

/** An error of the class that its code stands for. */
export function makeError(code: Code, reason: string, message: string, facts?: ErrorFacts): TidegateError {
  return new (CLASSES[code] ?? TidegateError)(code, reason, message, facts);
}

/** A stream that ended without the router saying why. */
export function streamLost(message: string): StreamLost {
  return new StreamLost("UNAVAILABLE", "STREAM_LOST", message);
}

/** No stream could be opened, and no router said why. */
export function unreachable(message: string): Unavailable {
  return new Unavailable("UNAVAILABLE", "UNREACHABLE", message);
}

/** The function that makes tokens or headers failed. */
export function tokenUnavailable(cause: unknown): AccessDenied {
  return new AccessDenied("UNAUTHENTICATED", "TOKEN_UNAVAILABLE", "no token or headers could be made", { cause });
}

/** The caller's time is over. */
export function deadlineExceeded(): DeadlineExceeded {
  return new DeadlineExceeded("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", "the deadline passed before the answer was whole");
}

/** An answer that ended otherwise than by itself, where only a whole one is of use. */
export function outputIncomplete(message: string): OutputInvalid {
  return new OutputInvalid("DATA_LOSS", "OUTPUT_INCOMPLETE", message);
}

/** An answer of another type than asked for. The cause may hold the answer, the message does not. */
export function outputInvalid(cause: unknown): OutputInvalid {
  return new OutputInvalid("DATA_LOSS", "OUTPUT_INVALID", "the answer is not of the type asked for", { cause });
}

/** The loop of calls and results was ended. */
export function tooManyRounds(limit: number): TooManyRounds {
  return new TooManyRounds("ABORTED", "TOO_MANY_ROUNDS", `the model called tools in each of ${limit} rounds`);
}

/** How a turn goes: its tries, and what may end it from its caller's side. What it brings is read from `events`. */

import { deadlineExceeded, streamLost, type TidegateError } from "./errors.js";
import { type Event, FinishReason, type Started, type Usage } from "./gen/tidegate/v1/event_pb.js";
import type { TurnSpec } from "./gen/tidegate/v1/turn_pb.js";
import { Mailbox } from "./mailbox.js";
import type { TurnOptions } from "./messages.js";
import { DEFAULT_RETRIES, type RetryBudget, retryDelay } from "./retry.js";
import { fromStatus } from "./status.js";
import { Gate, within } from "./time.js";

/** What happens in a turn: `event.case` tells what, `event.value` holds it. A turn that fails throws instead. */
export type TurnEvent = Extract<
  Event["event"],
  { case: "queued" | "started" | "textDelta" | "toolCallDelta" | "logprobs" | "moderation" | "degraded" | "usage" | "finished" }
>;

/** Where a try of a turn runs. */
export interface Place {
  /** Asks the router to end it. */
  cancel(): void;
  /** Takes no more events from there. */
  leave(): void;
}

/** How long the router's answer to a cancellation is waited for. */
const CANCEL_MS = 500;

/** A turn, from its first try to its end. */
export class Run {
  readonly events = new Mailbox<TurnEvent>();
  started: Started | undefined;
  usage: Usage | undefined;
  finishReason = FinishReason.UNSPECIFIED;
  stop = "";
  readonly #findPlace: (run: Run) => Place;
  readonly #makeSpec: (maxWaitMs: number | undefined) => TurnSpec;
  readonly #options: TurnOptions;
  readonly #budget: RetryBudget;
  readonly #until: number;
  readonly #over = new Gate();
  #place: Place | undefined;
  #retriesLeft: number;
  #deadline: NodeJS.Timeout | undefined;
  #nextTry: NodeJS.Timeout | undefined;
  #heard = false;
  #answered = false;
  #withdrawn = false;

  constructor(
    findPlace: (run: Run) => Place,
    makeSpec: (maxWaitMs: number | undefined) => TurnSpec,
    options: TurnOptions,
    budget: RetryBudget,
  ) {
    this.#findPlace = findPlace;
    this.#makeSpec = makeSpec;
    this.#options = options;
    this.#budget = budget;
    this.#until = performance.now() + (options.timeoutMs ?? Infinity);
    this.#retriesLeft = options.retries ?? DEFAULT_RETRIES;
  }

  /** Settles when the turn has ended, in whatever way. */
  get over(): Promise<void> {
    return this.#over.opened;
  }

  /** Starts the turn and the watch over its time and signal. */
  begin(): void {
    const { signal, timeoutMs } = this.#options;
    if (signal?.aborted) return this.#end(signal.reason);
    this.#try();
    signal?.addEventListener("abort", this.#onAbort);
    if (timeoutMs !== undefined) this.#deadline = setTimeout(() => this.#giveUp(deadlineExceeded()), timeoutMs);
  }

  /** The turn as the API has it; it may wait as long as its caller does. */
  spec(): TurnSpec {
    const wait = Math.min(this.#options.maxWaitMs ?? Infinity, this.#timeLeft());
    return this.#makeSpec(wait === Infinity ? undefined : wait);
  }

  /** Takes an event of the turn. */
  take({ event }: Event): void {
    this.#heard = true;
    switch (event.case) {
      case "failed":
        return this.fail(fromStatus(event.value.status!));
      case "usage": // told with `finished`: of a try that fails and is followed by another there is none
        this.usage = event.value;
        return;
      case "finished":
        return this.#finish(event);
      case "started":
        this.started = event.value;
        break;
      case "textDelta":
      case "toolCallDelta":
      case "logprobs":
        this.#answered = true;
        break;
      case "queued":
      case "moderation":
      case "degraded":
        break;
      default: // of a newer router
        return;
    }
    this.events.put(event);
  }

  /** The try has failed: another one follows, or the turn has failed. */
  fail(error: TidegateError): void {
    this.#place?.leave();
    const delay = this.#delayAfter(error);
    if (delay === undefined) return this.#end(error);
    this.#retriesLeft -= 1;
    this.#nextTry = setTimeout(() => this.#try(), delay);
  }

  /** Cancels the turn, and waits for the router to say that it has ended, but not for long. */
  async cancel(): Promise<void> {
    this.#withdraw();
    if (!(await within(this.over, CANCEL_MS))) this.#end(streamLost("the router did not answer the cancellation"));
  }

  #try(): void {
    this.#nextTry = undefined;
    this.#heard = false;
    this.#place = this.#findPlace(this);
  }

  #finish(event: TurnEvent & { case: "finished" }): void {
    this.finishReason = event.value.finishReason;
    this.stop = event.value.stop;
    if (this.usage) this.events.put({ case: "usage", value: this.usage });
    this.events.put(event);
    this.#budget.earn();
    this.#end();
  }

  #delayAfter(error: TidegateError): number | undefined {
    if (this.#answered || this.#withdrawn || this.#retriesLeft <= 0) return undefined;
    const delay = retryDelay(error, this.#heard);
    return delay !== undefined && delay < this.#timeLeft() && this.#budget.take() ? delay : undefined;
  }

  readonly #onAbort = (): void => this.#giveUp(this.#options.signal?.reason);

  #giveUp(reason: unknown): void {
    this.events.abort(reason);
    void this.cancel();
  }

  #withdraw(): void {
    if (this.#withdrawn || this.#over.isOpen) return;
    this.#withdrawn = true;
    if (this.#nextTry === undefined) return this.#place?.cancel();
    this.finishReason = FinishReason.CANCELLED; // between two tries no router knows of it
    this.#end();
  }

  #timeLeft(): number {
    return this.#until - performance.now();
  }

  #end(error?: unknown): void {
    if (this.#over.isOpen) return;
    clearTimeout(this.#deadline);
    clearTimeout(this.#nextTry);
    this.#options.signal?.removeEventListener("abort", this.#onAbort);
    this.#place?.leave();
    this.events.end(error);
    this.#over.open();
  }
}

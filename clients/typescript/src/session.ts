/** Many turns over one Converse stream; over the next one when the router behind it goes away. */

import type { TidegateError } from "./errors.js";
import type { Event } from "./gen/tidegate/v1/event_pb.js";
import { type Input, toSpec, type TurnOptions } from "./messages.js";
import type { RetryBudget } from "./retry.js";
import { type Place, Run } from "./run.js";
import { type Opening, Stream } from "./stream.js";
import { Turn } from "./turn.js";

/** A stream with its turns, which run side by side. Closing it cancels those that still run. Made by `Client.session`. */
export class Session implements AsyncDisposable {
  readonly #opening: Opening;
  readonly #budget: RetryBudget;
  readonly #onClose: (session: Session) => void;
  readonly #runs = new Set<Run>();
  readonly #places = new Map<number, { readonly run: Run; readonly stream: Stream }>();
  readonly #streams = new Set<Stream>();
  #stream: Stream | undefined;
  #lastNumber = 0;
  #closing: Promise<void> | undefined;

  /** @internal */
  constructor(opening: Opening, budget: RetryBudget, onClose: (session: Session) => void) {
    this.#opening = opening;
    this.#budget = budget;
    this.#onClose = onClose;
  }

  /** Starts a turn. What it fails with is thrown where it is read; what cannot be sent, as a count that is no whole number, here. */
  start<T = unknown>(input: Input, options: TurnOptions<T> = {}): Turn<T> {
    return new Turn(this.#begin(input, options), options.parse);
  }

  /** Starts the only turn of this session, which closes with it. @internal */
  startOnly<T>(input: Input, options: TurnOptions<T>): Turn<T> {
    try {
      const run = this.#begin(input, options);
      void run.over.then(() => this.close());
      return new Turn(run, options.parse);
    } catch (error) {
      void this.close();
      throw error;
    }
  }

  /** Cancels the turns that still run, and ends the stream. */
  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    await Promise.all([...this.#runs].map((run) => run.cancel()));
    await Promise.all([...this.#streams].map((stream) => stream.close()));
    this.#onClose(this);
  }

  #begin(input: Input, options: TurnOptions): Run {
    if (this.#closing) throw new TypeError("the session is closed");
    const run = new Run(this.#place, (maxWaitMs) => toSpec(input, options, maxWaitMs), options, this.#budget);
    run.begin();
    this.#runs.add(run);
    void run.over.then(() => this.#runs.delete(run));
    return run;
  }

  readonly #place = (run: Run): Place => {
    const number = ++this.#lastNumber;
    const stream = this.#openStream();
    stream.start(number, run.spec());
    this.#places.set(number, { run, stream });
    return { cancel: () => stream.cancel(number), leave: () => void this.#places.delete(number) };
  };

  #openStream(): Stream {
    if (!this.#stream?.takesTurns) {
      this.#stream = new Stream(this.#opening, { event: this.#take, end: this.#streamEnded });
      this.#streams.add(this.#stream);
    }
    return this.#stream;
  }

  readonly #take = (event: Event): void => this.#places.get(event.turn)?.run.take(event);

  readonly #streamEnded = (ended: Stream, error: TidegateError): void => {
    this.#streams.delete(ended);
    for (const { run, stream } of [...this.#places.values()]) if (stream === ended) run.fail(error);
  };
}

/** A turn as its caller reads it. */

import { AnswerBuilder } from "./answer.js";
import { FinishReason, type Started, type TokenLogprob, type Usage } from "./gen/tidegate/v1/event_pb.js";
import type { ToolCall } from "./gen/tidegate/v1/turn_pb.js";
import type { Run, TurnEvent } from "./run.js";
import { type Parser, readValue } from "./structured.js";

/**
 * One turn: an async iterable of its events, to be iterated once, or to be asked for its `text()` or `value()`.
 *
 * Leaving the loop early cancels the turn in the engine, and so does the end of an `await using`. Reading throws TidegateError when the
 * turn failed, and the signal's reason when its caller aborted it.
 */
export class Turn<T = unknown> implements AsyncIterable<TurnEvent>, AsyncDisposable {
  readonly #run: Run;
  readonly #parser: Parser<T> | undefined;
  readonly #answer = new AnswerBuilder();
  #iterated = false;
  #whole: Promise<string> | undefined;

  /** @internal */
  constructor(run: Run, parser: Parser<T> | undefined) {
    this.#run = run;
    this.#parser = parser;
  }

  /** Where it runs; undefined until a worker has taken it. */
  get started(): Started | undefined {
    return this.#run.started;
  }

  /** Tokens counted by the router; known when the turn has ended, by a failure too. */
  get usage(): Usage | undefined {
    return this.#run.usage;
  }

  /** Why it ended; UNSPECIFIED while it runs, and when it failed. */
  get finishReason(): FinishReason {
    return this.#run.finishReason;
  }

  /** The stop text that ended it; `""` for none. */
  get stop(): string {
    return this.#run.stop;
  }

  /** Calls that the model made, as far as they were read. To be carried out when `finishReason` is TOOL_CALLS, and only then. */
  get toolCalls(): readonly ToolCall[] {
    return this.#answer.toolCalls;
  }

  /** Log probabilities of the answer's tokens, as far as they were read. */
  get logprobs(): readonly TokenLogprob[] {
    return this.#answer.logprobs;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<TurnEvent, void, undefined> {
    if (this.#iterated) throw new TypeError("a turn can be iterated once");
    this.#iterated = true;
    try {
      for (let event = await this.#run.events.next(); event; event = await this.#run.events.next()) {
        this.#answer.take(event);
        yield event;
      }
    } finally {
      await this.#run.cancel();
    }
  }

  /** The whole answer's text, waiting for it. After a loop that left nothing unread, the text it read. */
  text(): Promise<string> {
    return (this.#whole ??= this.#readAll());
  }

  /** The whole answer as `parse` gives it, else as JSON. Throws OutputInvalid when it was cut or is of another type. */
  async value(): Promise<T> {
    return readValue(await this.text(), this.finishReason, this.#parser ?? ((value) => value as T));
  }

  /** Asks the router to end the turn, and waits for its word: `finished` CANCELLED follows unless the turn ends first. */
  cancel(): Promise<void> {
    return this.#run.cancel();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.cancel();
  }

  async #readAll(): Promise<string> {
    if (!this.#answer.isWhole) for await (const _ of this);
    return this.#answer.text;
  }
}

/**
 * The tools loop: the model calls functions, gets their results, and goes on, until it answers.
 *
 * Each round is a turn with the whole conversation, so a round can be tried again, or go to another router, like any turn.
 */

import { create } from "@bufbuild/protobuf";
import { outputIncomplete, tooManyRounds } from "./errors.js";
import { FinishReason, type Usage, UsageSchema } from "./gen/tidegate/v1/event_pb.js";
import { assistant, type Input, type MessageInit, toMessages, toolResult, type TurnOptions } from "./messages.js";
import type { TurnEvent } from "./run.js";
import type { Session } from "./session.js";
import { carryOut, describe, type Tools } from "./tools.js";
import type { Turn } from "./turn.js";

/** Options of a tools loop. Those of a turn hold for each round; `timeoutMs` and `signal` for all together. */
export interface ToolLoopOptions extends Omit<TurnOptions, "tools" | "schema" | "parse" | "responseFormat"> {
  readonly tools: Tools;
  /** Most rounds; 8 when left out. A model that calls tools in the last of them too fails with TooManyRounds. */
  readonly maxRounds?: number | undefined;
}

const DEFAULT_ROUNDS = 8;

/** Async iterable of the events of all rounds, to be iterated once, or to be asked for its `text()`. Leaving it early cancels the round. */
export class ToolLoop implements AsyncIterable<TurnEvent> {
  /** Tokens of all rounds so far. */
  readonly usage: Usage = create(UsageSchema);
  readonly #open: () => Session;
  readonly #options: ToolLoopOptions;
  readonly #messages: MessageInit[];
  #iterated = false;
  #turn: Turn | undefined;
  #text: Promise<string> | undefined;

  /** @internal */
  constructor(open: () => Session, input: Input, options: ToolLoopOptions) {
    this.#open = open;
    this.#options = options;
    this.#messages = toMessages(input);
  }

  /** The conversation so far: what was asked, the model's answers and calls, their results. */
  get messages(): readonly MessageInit[] {
    return this.#messages;
  }

  /** Why the newest round ended. */
  get finishReason(): FinishReason {
    return this.#turn?.finishReason ?? FinishReason.UNSPECIFIED;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<TurnEvent, void, undefined> {
    if (this.#iterated) throw new TypeError("a tools loop can be iterated once");
    this.#iterated = true;
    const { tools, maxRounds = DEFAULT_ROUNDS, timeoutMs = Infinity, toolChoice, ...options } = this.#options;
    const until = performance.now() + timeoutMs;
    await using session = this.#open();
    for (let round = 1; ; round++) {
      const left = until - performance.now();
      const turn = session.start(this.#messages, {
        ...options,
        tools: describe(tools),
        toolChoice: round === 1 ? toolChoice : undefined, // a call that is forced is forced once
        timeoutMs: left < Infinity ? left : undefined,
      });
      yield* this.#read(turn);
      if (turn.toolCalls.length === 0) return;
      if (turn.finishReason !== FinishReason.TOOL_CALLS) throw outputIncomplete("the answer ended in the middle of a tool call");
      if (round >= maxRounds) throw tooManyRounds(maxRounds);
      await this.#answer(turn);
    }
  }

  /** The text of the last round, waiting for it. After a loop that left nothing unread, the text it read; TypeError after another. */
  text(): Promise<string> {
    return (this.#text ??= this.#readAll());
  }

  async #readAll(): Promise<string> {
    if (!this.#iterated) for await (const _ of this);
    if (!this.#turn || this.finishReason === FinishReason.TOOL_CALLS) throw new TypeError("the tools loop was left before its end");
    return this.#turn.text();
  }

  async *#read(turn: Turn): AsyncGenerator<TurnEvent, void, undefined> {
    this.#turn = turn;
    try {
      yield* turn;
    } finally {
      this.usage.promptTokens += turn.usage?.promptTokens ?? 0;
      this.usage.completionTokens += turn.usage?.completionTokens ?? 0;
      this.usage.cachedTokens += turn.usage?.cachedTokens ?? 0;
    }
    this.#messages.push(assistant(await turn.text(), turn.toolCalls));
  }

  async #answer({ toolCalls }: Turn): Promise<void> {
    const { tools, signal } = this.#options;
    const results = await Promise.all(toolCalls.map((call) => carryOut(tools, call, signal)));
    this.#messages.push(...toolCalls.map((call, at) => toolResult(call.id, results[at]!)));
  }
}

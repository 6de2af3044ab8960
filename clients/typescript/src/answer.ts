/** An answer in the making: deltas joined. */

import { create } from "@bufbuild/protobuf";
import type { TokenLogprob, ToolCallDelta } from "./gen/tidegate/v1/event_pb.js";
import { type ToolCall, ToolCallSchema } from "./gen/tidegate/v1/turn_pb.js";
import type { TurnEvent } from "./run.js";

/** Collects what a turn brings. */
export class AnswerBuilder {
  readonly toolCalls: ToolCall[] = [];
  readonly logprobs: TokenLogprob[] = [];
  isWhole = false;
  readonly #texts: string[] = [];

  get text(): string {
    return this.#texts.join("");
  }

  /** Takes the next event of the turn. */
  take(event: TurnEvent): void {
    if (event.case === "textDelta") this.#texts.push(event.value.text);
    if (event.case === "toolCallDelta") this.#takeCall(event.value);
    if (event.case === "logprobs") this.logprobs.push(...event.value.tokens);
    if (event.case === "finished") this.isWhole = true;
  }

  #takeCall({ index, callId, name, argumentsJson }: ToolCallDelta): void {
    const call = (this.toolCalls[index] ??= create(ToolCallSchema, { id: callId, name }));
    call.argumentsJson += argumentsJson;
  }
}

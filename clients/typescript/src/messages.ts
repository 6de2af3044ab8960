/** What a turn is asked: messages and options, and how they become a TurnSpec. */

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type Message,
  MessageSchema,
  type Priority,
  ResponseFormatSchema,
  Role,
  type SamplingSchema,
  type ToolCall,
  type ToolChoiceSchema,
  ToolMode,
  type ToolSchema,
  type TurnSpec,
  TurnSpecSchema,
} from "./gen/tidegate/v1/turn_pb.js";
import type { Parser } from "./structured.js";
import { toDuration } from "./time.js";

/** A conversation, oldest message first; a string is one message of the user. */
export type Input = string | MessageInit | readonly MessageInit[];

/** A message as `user(...)` makes it, or its fields. */
export type MessageInit = MessageInitShape<typeof MessageSchema>;

/** How tokens are chosen; every field is optional, and unset and zero differ. */
export type SamplingOptions = Omit<Exclude<MessageInitShape<typeof SamplingSchema>, Message>, "seed" | "$typeName"> & {
  readonly seed?: number | bigint;
};

/** A JSON schema, as an object. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** Which of a turn's tools the model calls. */
export type ToolChoice = "auto" | "none" | "required" | { readonly tool: string };

/** Options of one turn. `T` is the type of a structured answer. */
export interface TurnOptions<T = unknown> {
  /** Model name; the session's or router's default when left out. */
  readonly model?: string | undefined;
  readonly sampling?: SamplingOptions | undefined;
  /** Most tokens of the answer. */
  readonly maxOutputTokens?: number | undefined;
  /** Fewest tokens before the model may end its answer. */
  readonly minOutputTokens?: number | undefined;
  /** Texts that end the answer and are no part of it. */
  readonly stop?: readonly string[] | undefined;
  /** Tools the model may call; `runTools` also runs them. */
  readonly tools?: readonly MessageInitShape<typeof ToolSchema>[] | undefined;
  /** Which of them it calls: `"auto"` as it likes, `"none"`, one of any of them by all means, or the named one. */
  readonly toolChoice?: ToolChoice | undefined;
  /** Whether one answer may hold several calls; it may when left out. */
  readonly parallelToolCalls?: boolean | undefined;
  /** JSON schema that the answer conforms to, token by token. */
  readonly schema?: JsonSchema | undefined;
  /** Makes the caller's type of the answer's JSON: a function, or an object with `parse`, as zod's schemas are. For `turn.value()`. */
  readonly parse?: Parser<T> | undefined;
  /** Any other form of the answer: a regular expression, a grammar, any JSON object. */
  readonly responseFormat?: MessageInitShape<typeof ResponseFormatSchema> | undefined;
  /** Whether to send the log probability of each token. */
  readonly logprobs?: boolean | undefined;
  readonly priority?: Priority | undefined;
  /** Longest time the turn may wait for a worker. */
  readonly maxWaitMs?: number | undefined;
  /** Longest time for the whole turn, retries included; then it is cancelled and fails with DEADLINE_EXCEEDED. */
  readonly timeoutMs?: number | undefined;
  /** Cancels the turn; reading it then throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Tries after the first that fails before any output; 2 when left out. */
  readonly retries?: number | undefined;
}

/** A user's message. */
export function user(content: string): Message {
  return create(MessageSchema, { role: Role.USER, content });
}

/** Instructions to the model. */
export function system(content: string): Message {
  return create(MessageSchema, { role: Role.SYSTEM, content });
}

/** An earlier answer of the model, with the calls that it made. */
export function assistant(content: string, toolCalls: readonly ToolCall[] = []): Message {
  return create(MessageSchema, { role: Role.ASSISTANT, content, toolCalls: [...toolCalls] });
}

/** The result of a tool call. */
export function toolResult(toolCallId: string, content: string): Message {
  return create(MessageSchema, { role: Role.TOOL, toolCallId, content });
}

/** The messages of an input. */
export function toMessages(input: Input): MessageInit[] {
  if (typeof input === "string") return [user(input)];
  return isList(input) ? [...input] : [input];
}

/** The turn as the API has it. */
export function toSpec(input: Input, options: TurnOptions, maxWaitMs: number | undefined): TurnSpec {
  return create(TurnSpecSchema, {
    model: options.model ?? "",
    messages: toMessages(input),
    stop: [...(options.stop ?? [])],
    tools: [...(options.tools ?? [])],
    logprobs: options.logprobs ?? false,
    ...defined({
      sampling: options.sampling && toSampling(options.sampling),
      maxOutputTokens: options.maxOutputTokens,
      minOutputTokens: options.minOutputTokens,
      toolChoice: options.toolChoice && toToolChoice(options.toolChoice),
      parallelToolCalls: options.parallelToolCalls,
      responseFormat: toFormat(options),
      priority: options.priority,
      maxWait: maxWaitMs === undefined ? undefined : toDuration(maxWaitMs),
    }),
  });
}

/** Sampling as the API has it. */
export function toSampling({ seed, ...rest }: SamplingOptions): MessageInitShape<typeof SamplingSchema> {
  return seed === undefined ? rest : { ...rest, seed: BigInt(seed) };
}

function toToolChoice(choice: ToolChoice): MessageInitShape<typeof ToolChoiceSchema> {
  if (typeof choice === "object") return { choice: { case: "tool", value: choice.tool } };
  return { choice: { case: "mode", value: { auto: ToolMode.AUTO, none: ToolMode.NONE, required: ToolMode.REQUIRED }[choice] } };
}

function toFormat({ schema, responseFormat }: TurnOptions): MessageInitShape<typeof ResponseFormatSchema> | undefined {
  return schema ? { format: { case: "jsonSchema", value: JSON.stringify(schema) } } : responseFormat;
}

function isList(input: MessageInit | readonly MessageInit[]): input is readonly MessageInit[] {
  return Array.isArray(input);
}

/** Without the fields that are undefined: for protobuf a field that is named is set. */
function defined<Fields extends object>(fields: Fields): { [Name in keyof Fields]?: Exclude<Fields[Name], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as never;
}

/** Tidegate's TypeScript client. */

export { type ChatOptions, Client, type ClientOptions, type SessionOptions, type StreamOptions } from "./client.js";
export { type CredentialOptions, type Headers, PlaintextRefused, type TlsOptions } from "./credentials.js";
export {
  AccessDenied,
  type Code,
  DeadlineExceeded,
  Exhausted,
  OutputInvalid,
  type QuotaViolation,
  RequestInvalid,
  StreamLost,
  TidegateError,
  TooManyRounds,
  Unavailable,
  type Violation,
} from "./errors.js";
export type { CountTokensResponse } from "./gen/tidegate/v1/chat_service_pb.js";
export { type Allowance, FinishReason, type Queued, type Started, type TokenLogprob, type Usage } from "./gen/tidegate/v1/event_pb.js";
export { type Message, Priority, Role, type ToolCall } from "./gen/tidegate/v1/turn_pb.js";
export {
  assistant,
  type Input,
  type JsonSchema,
  type MessageInit,
  type SamplingOptions,
  system,
  type ToolChoice,
  toolResult,
  type TurnOptions,
  user,
} from "./messages.js";
export type { TurnEvent } from "./run.js";
export type { Session } from "./session.js";
export type { Parser } from "./structured.js";
export type { ToolLoop, ToolLoopOptions } from "./tool_loop.js";
export { type Tool, tool, type ToolContext, ToolFailed, type Tools } from "./tools.js";
export type { Turn } from "./turn.js";

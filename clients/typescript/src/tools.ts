/** Functions that the model may call. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ToolCall, ToolSchema } from "./gen/tidegate/v1/turn_pb.js";
import type { JsonSchema } from "./messages.js";
import { type Parser, parseWith } from "./structured.js";

/** A function that the model may call. */
export interface Tool<Arguments = unknown> {
  /** What it does, for the model. */
  readonly description?: string;
  /** JSON schema of its arguments, an object. Left out: it takes none. */
  readonly parameters?: JsonSchema;
  /** Checks the arguments and gives them their type; a zod schema for example. */
  readonly parse?: Parser<Arguments>;
  /** Runs it. A string goes to the model as it is, anything else as JSON. */
  readonly run: (input: Arguments, context: ToolContext) => unknown;
}

/** Tools by their names. What each takes differs, and is checked where `tool` makes it. */
export type Tools = Readonly<Record<string, Tool<any>>>;

/** What a tool may want to know of its call. */
export interface ToolContext {
  readonly call: ToolCall;
  /** The loop's signal. */
  readonly signal: AbortSignal | undefined;
}

/** Thrown by a tool to tell the model what went wrong. Of other exceptions it learns only that the tool failed. */
export class ToolFailed extends Error {
  override readonly name = "ToolFailed";
}

/** A tool whose arguments have the type that `parse` gives them. */
export function tool<Arguments>(definition: Tool<Arguments>): Tool<Arguments> {
  return definition;
}

/** Tools as the API has them. */
export function describe(tools: Tools): MessageInitShape<typeof ToolSchema>[] {
  return Object.entries(tools).map(([name, { description = "", parameters }]) => ({
    name,
    description,
    parametersJson: parameters ? JSON.stringify(parameters) : "",
  }));
}

/** Carries a call out; gives what the model is told: the result, or what went wrong. */
export async function carryOut(tools: Tools, call: ToolCall, signal: AbortSignal | undefined): Promise<string> {
  const known = tools[call.name];
  if (!known) return failure("there is no such tool");
  let input: unknown;
  try {
    input = parseWith(known.parse ?? ((value) => value), JSON.parse(call.argumentsJson || "{}"));
  } catch (error) {
    return failure(`arguments: ${error instanceof Error ? error.message : "not those that the tool takes"}`);
  }
  try {
    const result = await known.run(input, { call, signal });
    return typeof result === "string" ? result : (JSON.stringify(result) ?? "");
  } catch (error) {
    if (error instanceof ToolFailed) return failure(error.message);
    const detail = error instanceof Error && error.stack ? error.stack : String(error);
    process.emitWarning(`tool ${call.name} failed`, { type: "TidegateWarning", detail });
    return failure("the tool failed");
  }
}

function failure(error: string): string {
  return JSON.stringify({ error });
}

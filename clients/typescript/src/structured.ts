/** Structured output: the answer's JSON as a value of the caller's type. */

import { outputIncomplete, outputInvalid } from "./errors.js";
import { FinishReason } from "./gen/tidegate/v1/event_pb.js";

/** Checks a value and gives it its type, or throws: a function, or an object with `parse` such as a zod schema. */
export type Parser<T> = ((value: unknown) => T) | { parse(value: unknown): T };

/** Runs a parser. */
export function parseWith<T>(parser: Parser<T>, value: unknown): T {
  return typeof parser === "function" ? parser(value) : parser.parse(value);
}

/** A whole answer as a value. Throws OutputInvalid when it was cut, is no JSON, or is not of the type. */
export function readValue<T>(text: string, finishReason: FinishReason, parser: Parser<T>): T {
  if (finishReason !== FinishReason.STOP) throw outputIncomplete(`the answer ended too early: ${FinishReason[finishReason]}`);
  try {
    return parseWith(parser, JSON.parse(text));
  } catch (error) {
    throw outputInvalid(error);
  }
}

/** How calls end on the wire: google.rpc.Status and gRPC's own statuses as errors. */

import { type DescMessage, fromBinary, type MessageShape } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { status as Codes, type StatusObject } from "@grpc/grpc-js";
import { type Code, makeError, type TidegateError, unreachable } from "./errors.js";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  QuotaFailureSchema,
  RequestInfoSchema,
  RetryInfoSchema,
} from "./gen/google/rpc/error_details_pb.js";
import { type Status, StatusSchema } from "./gen/google/rpc/status_pb.js";
import { toMs } from "./time.js";

const DOMAIN = "tidegate.dev";

/** What gRPC and proxies call a connection that broke. */
const BROKEN = new Set<number>([Codes.UNAVAILABLE, Codes.INTERNAL, Codes.UNKNOWN, Codes.CANCELLED]);

/** A status as an error. */
export function fromStatus(status: Status): TidegateError {
  const retry = detail(status, RetryInfoSchema)?.retryDelay;
  return makeError(codeName(status.code), detail(status, ErrorInfoSchema)?.reason ?? "", status.message, {
    requestId: detail(status, RequestInfoSchema)?.requestId ?? "",
    violations: (detail(status, BadRequestSchema)?.fieldViolations ?? []).map(({ field, description }) => ({ field, description })),
    quotaViolations: (detail(status, QuotaFailureSchema)?.violations ?? []).map(({ subject, description }) => ({ subject, description })),
    retryAfterMs: retry && toMs(retry),
  });
}

/** What the router said at the end of a call; undefined when it was not the router that ended it. */
export function fromRouter(end: StatusObject): TidegateError | undefined {
  const packed = end.metadata.get("grpc-status-details-bin")[0];
  if (!(packed instanceof Uint8Array)) return undefined;
  try {
    const status = fromBinary(StatusSchema, packed);
    return detail(status, ErrorInfoSchema)?.domain === DOMAIN ? fromStatus(status) : undefined;
  } catch {
    return undefined; // the words of somebody in between, in a form of their own
  }
}

/** What a call failed with that brought nothing: the router's words, or what their absence means. */
export function fromCall(end: StatusObject): TidegateError {
  return fromRouter(end) ?? (isBroken(end) ? unreachable(end.details) : makeError(codeName(end.code), "", end.details));
}

/** Whether a call ended because its connection did. */
export function isBroken(end: StatusObject): boolean {
  return BROKEN.has(end.code);
}

function detail<Desc extends DescMessage>(status: Status, schema: Desc): MessageShape<Desc> | undefined {
  for (const packed of status.details) {
    const message = anyUnpack(packed, schema);
    if (message) return message;
  }
  return undefined;
}

function codeName(code: number): Code {
  return (Codes[code] as Code | undefined) ?? "UNKNOWN";
}

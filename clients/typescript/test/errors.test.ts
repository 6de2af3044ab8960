/** Statuses as errors. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { create, type DescMessage, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { Metadata, status as Codes } from "@grpc/grpc-js";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  QuotaFailureSchema,
  RequestInfoSchema,
  RetryInfoSchema,
} from "#src/gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "#src/gen/google/rpc/status_pb.js";
import { AccessDenied, Exhausted, StreamLost, TidegateError, Unavailable } from "#src/errors.js";
import { fromCall, fromRouter, fromStatus } from "#src/status.js";

function pack<Desc extends DescMessage>(schema: Desc, fields: MessageInitShape<Desc>) {
  return anyPack(schema, create(schema, fields));
}

const QUOTA_USED_UP = create(StatusSchema, {
  code: Codes.RESOURCE_EXHAUSTED,
  message: "used up",
  details: [
    pack(ErrorInfoSchema, { reason: "QUOTA_EXHAUSTED", domain: "tidegate.dev" }),
    pack(RequestInfoSchema, { requestId: "r1" }),
    pack(QuotaFailureSchema, { violations: [{ subject: "tenant", description: "tokens_per_minute" }] }),
    pack(BadRequestSchema, { fieldViolations: [{ field: "messages", description: "shorter" }] }),
    pack(RetryInfoSchema, { retryDelay: { seconds: 1n, nanos: 500_000_000 } }),
  ],
});

function callEnd(code: Codes, details: string, status?: typeof QUOTA_USED_UP) {
  const metadata = new Metadata();
  if (status) metadata.set("grpc-status-details-bin", Buffer.from(toBinary(StatusSchema, status)));
  return { code, details, metadata };
}

test("all that a status tells is on the error", () => {
  const error = fromStatus(QUOTA_USED_UP);
  assert.ok(error instanceof Exhausted);
  assert.equal(error.name, "Exhausted");
  assert.equal(error.message, "RESOURCE_EXHAUSTED QUOTA_EXHAUSTED: used up");
  assert.deepEqual([error.code, error.reason, error.requestId, error.retryAfterMs], ["RESOURCE_EXHAUSTED", "QUOTA_EXHAUSTED", "r1", 1500]);
  assert.deepEqual(error.violations, [{ field: "messages", description: "shorter" }]);
  assert.deepEqual(error.quotaViolations, [{ subject: "tenant", description: "tokens_per_minute" }]);
});

test("a call that a router ended has the router's words", () => {
  assert.ok(fromCall(callEnd(Codes.RESOURCE_EXHAUSTED, "used up", QUOTA_USED_UP)) instanceof Exhausted);
});

test("a call that somebody else ended has no router's words", () => {
  const foreign = create(StatusSchema, { code: Codes.UNAVAILABLE, details: [pack(ErrorInfoSchema, { reason: "X", domain: "proxy" })] });
  assert.equal(fromRouter(callEnd(Codes.UNAVAILABLE, "", foreign)), undefined);
  assert.equal(fromRouter(callEnd(Codes.UNAVAILABLE, "")), undefined);
  const garbage = callEnd(Codes.UNAVAILABLE, "");
  garbage.metadata.set("grpc-status-details-bin", Buffer.from([255, 255]));
  assert.equal(fromRouter(garbage), undefined);
});

test("a connection that does not come about is not a refusal", () => {
  const nobody = fromCall(callEnd(Codes.UNAVAILABLE, "ECONNREFUSED"));
  assert.ok(nobody instanceof Unavailable && !(nobody instanceof StreamLost));
  assert.equal(nobody.reason, "UNREACHABLE");
  const refused = fromCall(callEnd(Codes.UNAUTHENTICATED, "proxy says no"));
  assert.ok(refused instanceof AccessDenied);
  assert.equal(refused.message, "UNAUTHENTICATED: proxy says no");
});

test("a code that nobody knows is UNKNOWN", () => {
  const error = fromStatus(create(StatusSchema, { code: 99 }));
  assert.ok(error instanceof TidegateError);
  assert.equal(error.code, "UNKNOWN");
});

/** The small parts: retries, credentials, mailbox, durations. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, PlaintextRefused } from "tidegate";
import { Credentials, isLocal } from "#src/credentials.js";
import { makeError, streamLost, unreachable } from "#src/errors.js";
import { Mailbox } from "#src/mailbox.js";
import { RetryBudget, retryDelay } from "#src/retry.js";
import { toDuration, toMs } from "#src/time.js";

test("a try follows after the router's time or a little later", () => {
  const delay = retryDelay(makeError("UNAVAILABLE", "NO_WORKER", "", { retryAfterMs: 1000 }), true)!;
  assert.ok(delay >= 1000 && delay <= 1200, `${delay}`);
});

test("no try follows where the router says no time, too long a time, or where time does not help", () => {
  assert.equal(retryDelay(makeError("UNAVAILABLE", "X", ""), true), undefined);
  assert.equal(retryDelay(makeError("RESOURCE_EXHAUSTED", "X", "", { retryAfterMs: 60_000 }), true), undefined);
  assert.equal(retryDelay(makeError("INTERNAL", "X", "", { retryAfterMs: 1 }), true), undefined);
});

test("a connection that broke or did not come about is tried again when nothing was heard of the turn, and else not", () => {
  for (const error of [streamLost(""), unreachable("")]) assert.ok(retryDelay(error, false)! >= 100);
  assert.equal(retryDelay(streamLost(""), true), undefined);
});

test("a budget of retries runs dry, and ten turns that complete earn one", () => {
  const budget = new RetryBudget(2);
  assert.deepEqual([budget.take(), budget.take(), budget.take()], [true, true, false]);
  for (let turn = 0; turn < 11; turn++) budget.earn();
  assert.deepEqual([budget.take(), budget.take()], [true, false]);
});

test("only loopback and Unix sockets are this machine", () => {
  for (const target of ["127.0.0.1:1", "localhost:1", "[::1]:1", "dns:///localhost:1", "ipv4:127.0.0.1:1", "unix:/run/t.sock"]) {
    assert.ok(isLocal(target), target);
  }
  for (const target of ["10.0.0.1:1", "localhost.example.org:1", "127.0.0.1.example.org:1", "ipv4:127.0.0.1:1,10.0.0.1:1", "dns:///t:1"]) {
    assert.ok(!isLocal(target), target);
  }
});

test("a key is not sent over plaintext to another machine", () => {
  assert.throws(() => new Client("router:1", { key: "k" }), PlaintextRefused);
  assert.throws(() => new Client("router:1", { token: () => "t" }), PlaintextRefused);
  for (const options of [{ tls: true }, { tls: { serverName: "t" } }, { allowPlaintext: true }]) {
    new Client("router:1", { key: "k", ...options });
  }
  assert.throws(() => new Client("router:1", { key: "k", token: "t", tls: true }), /not both/);
});

test("the key comes from the environment when none is given", async () => {
  process.env["TIDEGATE_KEY"] = "from-environment";
  try {
    assert.throws(() => new Credentials("router:1", {}), /unencrypted/);
    assert.deepEqual((await new Credentials("localhost:1", {}).metadata()).get("authorization"), ["Bearer from-environment"]);
    assert.deepEqual((await new Credentials("localhost:1", { token: "t" }).metadata()).get("authorization"), ["Bearer t"]);
  } finally {
    delete process.env["TIDEGATE_KEY"];
  }
});

test("the target comes from the environment when none is given, else it is that of tidegate up", () => {
  process.env["TIDEGATE_TARGET"] = "router:1";
  try {
    assert.throws(() => new Client("", { key: "k" }), PlaintextRefused);
    new Client("localhost:1", { key: "k" });
  } finally {
    delete process.env["TIDEGATE_TARGET"];
  }
  new Client(undefined, { key: "k" });
});

test("a mailbox gives what it got, then its end; an abort drops what was not read", async () => {
  const ended = new Mailbox<{ n: number }>();
  ended.put({ n: 1 });
  ended.end(new Error("end"));
  ended.put({ n: 2 });
  assert.deepEqual(await ended.next(), { n: 1 });
  await assert.rejects(ended.next(), /end/);
  const aborted = new Mailbox<{ n: number }>();
  aborted.put({ n: 1 });
  aborted.abort(new Error("abort"));
  await assert.rejects(aborted.next(), /abort/);
});

test("durations are milliseconds", () => {
  assert.equal(toMs(toDuration(1234)), 1234);
  assert.deepEqual([toDuration(-5).seconds, toDuration(-5).nanos], [0n, 0]);
});

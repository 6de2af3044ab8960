/** What the conformance table cannot show: this language's own ways, and routers that behave badly. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { AccessDenied, Client, FinishReason, RequestInvalid, StreamLost, type Turn } from "tidegate";
import { ending, fails, FakeRouter, type Script, says } from "./fake_router.js";

const talks: Script = (_, reply) => reply(says("hel"), says("lo"), ...ending());
const neverEnds: Script = (_, reply) => reply(says("hel"));

/** Reads a turn until its first text. */
async function readSome(turn: Turn): Promise<void> {
  for await (const event of turn) if (event.case === "textDelta") return;
}

test("text, finish reason, usage and events belong together, whichever is asked for first", async () => {
  await using router = await FakeRouter.start(talks);
  await using client = new Client(router.target);
  const turn = client.chat("hi");
  const kinds: string[] = [];
  for await (const event of turn) kinds.push(event.case);
  assert.deepEqual(kinds, ["textDelta", "textDelta", "usage", "finished"]);
  assert.equal(await turn.text(), "hello");
  assert.equal(turn.finishReason, FinishReason.STOP);
  assert.equal(turn.usage?.promptTokens, 3);
});

test("a turn is iterated once, and what was left early has no text", async () => {
  await using router = await FakeRouter.start(neverEnds);
  await using client = new Client(router.target);
  const turn = client.chat("hi");
  await readSome(turn);
  await assert.rejects(readSome(turn), TypeError);
  await assert.rejects(turn.text(), TypeError);
});

test("leaving a loop waits for the router's word, so usage is known", async () => {
  await using router = await FakeRouter.start(neverEnds);
  await using client = new Client(router.target);
  const turn = client.chat("hi");
  await readSome(turn);
  assert.deepEqual(router.cancelled, [1]);
  assert.equal(turn.finishReason, FinishReason.CANCELLED);
  assert.equal(turn.usage?.completionTokens, 2);
});

test("the end of an `await using` cancels a turn that nobody reads", async () => {
  await using router = await FakeRouter.start(neverEnds);
  await using client = new Client(router.target);
  {
    await using _turn = client.chat("hi");
  }
  assert.deepEqual(router.cancelled, [1]);
});

test("closing the client cancels what runs, and nothing starts on a closed session", async () => {
  await using router = await FakeRouter.start(neverEnds);
  const client = new Client(router.target);
  const session = client.session();
  const turns = [session.start("hi"), session.start("hi"), client.chat("hi")];
  const texts = Promise.all(turns.map((turn) => turn.text()));
  await client.close();
  assert.deepEqual(await texts, ["hel", "hel", "hel"]);
  assert.equal(router.cancelled.length, 3);
  assert.throws(() => session.start("hi"), TypeError);
});

test("an aborted signal ends reading with its reason, and the turn", async () => {
  await using router = await FakeRouter.start(neverEnds);
  await using client = new Client(router.target);
  const abort = new AbortController();
  const turn = client.chat("hi", { signal: abort.signal });
  const reading = (async () => {
    for await (const event of turn) if (event.case === "textDelta") abort.abort(new Error("enough"));
  })();
  await assert.rejects(reading, /enough/);
  assert.deepEqual(router.cancelled, [1]);
  assert.equal(turn.usage?.completionTokens, 2);
});

test("a signal that is aborted already starts nothing", async () => {
  await using router = await FakeRouter.start(talks);
  await using client = new Client(router.target);
  await assert.rejects(client.chat("hi", { signal: AbortSignal.abort(new Error("no")) }).text(), /no/);
  assert.equal(router.turns.length, 0);
});

test("a router that does not answer a cancellation is not waited for", async () => {
  await using router = await FakeRouter.start(neverEnds, false);
  await using client = new Client(router.target);
  const turn = client.chat("hi");
  await readSome(turn);
  assert.deepEqual(router.cancelled, [1]);
  assert.equal(turn.finishReason, FinishReason.UNSPECIFIED);
});

test("what cannot be sent is refused where it is started, and harms no other turn", async () => {
  await using router = await FakeRouter.start(talks);
  await using client = new Client(router.target);
  await using session = client.session();
  assert.throws(() => session.start("hi", { maxOutputTokens: 1.5 }), /maxOutputTokens|max_output_tokens/);
  assert.throws(() => client.chat("hi", { maxOutputTokens: -1 }));
  assert.equal(await session.start("hi").text(), "hello");
});

test("a stream that ends with OK in the middle of a turn has lost it", async () => {
  await using router = await FakeRouter.start((_, reply, end) => {
    reply(says("hel"));
    end();
  });
  await using client = new Client(router.target);
  await assert.rejects(client.chat("hi").text(), StreamLost);
  assert.equal(router.turns.length, 1);
});

test("a turn of which nothing was heard when its stream ended is tried again", async () => {
  await using router = await FakeRouter.start((turn, reply, end) => (router.turns.length > 1 ? talks(turn, reply, end) : end()));
  await using client = new Client(router.target);
  assert.equal(await client.chat("hi").text(), "hello");
  assert.equal(router.turns.length, 2);
});

test("failures are of the class that says who must act", async () => {
  await using router = await FakeRouter.start((_, reply) => reply(fails(3, "FIELD_INVALID")));
  await using client = new Client(router.target);
  await assert.rejects(client.chat("hi").text(), RequestInvalid);
});

test("key, token and headers go with every stream; a token is asked for anew", async () => {
  await using router = await FakeRouter.start(talks);
  await using client = new Client(router.target, { token: async () => `t${router.headers.length}`, headers: { a: "client", b: "client" } });
  await client.chat("hi").text();
  await client.chat("hi", { headers: () => ({ b: "call" }) }).text();
  const sent = router.headers.map((metadata) => ["authorization", "a", "b"].map((name) => metadata.get(name)[0]));
  assert.deepEqual(sent, [
    ["Bearer t0", "client", "client"],
    ["Bearer t1", "client", "call"],
  ]);
});

test("a token that cannot be had is an error of the turn", async () => {
  await using client = new Client("127.0.0.1:1", { token: () => Promise.reject(new Error("identity provider is down")) });
  const error: unknown = await client
    .chat("hi")
    .text()
    .catch((reason: unknown) => reason);
  assert.ok(error instanceof AccessDenied);
  assert.equal(error.reason, "TOKEN_UNAVAILABLE");
  assert.match(String(error.cause), /identity provider/);
});

test("a turn may wait as long as its caller does", async () => {
  await using router = await FakeRouter.start(talks);
  await using client = new Client(router.target);
  await client.chat("hi", { timeoutMs: 5_000 }).text();
  await client.chat("hi", { timeoutMs: 5_000, maxWaitMs: 1_500 }).text();
  await client.chat("hi").text();
  const waits = router.turns.map(({ spec }) => spec?.maxWait && Number(spec.maxWait.seconds) + spec.maxWait.nanos / 1e9);
  assert.ok(waits[0]! > 4 && waits[0]! <= 5, `${waits[0]}`);
  assert.deepEqual(waits.slice(1), [1.5, undefined]);
});

test("unset and zero differ, and seeds may be numbers", async () => {
  await using router = await FakeRouter.start(talks);
  await using client = new Client(router.target);
  await client.chat("hi", { sampling: { temperature: 0, seed: 7 } }).text();
  const { sampling } = router.turns[0]!.spec!;
  assert.deepEqual([sampling?.temperature, sampling?.seed, sampling?.topP], [0, 7n, undefined]);
});

test("an object with `parse`, as zod's schemas are, gives the answer's type; without one it is JSON", async () => {
  await using router = await FakeRouter.start((_, reply) => reply(says('{"n": 2}'), ...ending()));
  await using client = new Client(router.target);
  const schema = { type: "object" };
  const doubled: number = await client.chat("hi", { schema, parse: { parse: (value) => (value as { n: number }).n * 2 } }).value();
  assert.equal(doubled, 4);
  assert.deepEqual(await client.chat("hi", { schema }).value(), { n: 2 });
  assert.deepEqual(router.turns[0]!.spec?.responseFormat?.format, { case: "jsonSchema", value: '{"type":"object"}' });
});

test("tokens are counted", async () => {
  await using router = await FakeRouter.start(talks);
  await using client = new Client(router.target);
  assert.equal((await client.countTokens("hi", { timeoutMs: 5_000 })).promptTokens, 1);
});

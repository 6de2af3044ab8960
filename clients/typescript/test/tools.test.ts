/** The tools loop: what goes back to the model. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { Client, FinishReason, Role, TooManyRounds, tool, ToolFailed } from "tidegate";
import { calls, ending, FakeRouter, type Script, says } from "./fake_router.js";

/** A model that makes one call, then answers. */
function callsOnce(name: string, argumentsJson: string): Script {
  return ({ spec }, reply) =>
    spec!.messages.at(-1)!.role === Role.TOOL
      ? reply(says("done"), ...ending())
      : reply(calls(name, argumentsJson), ...ending(FinishReason.TOOL_CALLS));
}

const double = tool({ parse: (value) => value as { n: number }, run: ({ n }) => ({ doubled: n * 2 }) });
const breaks = tool({ run: () => Promise.reject(new Error("secret")) });
const refuses = tool({ run: () => Promise.reject(new ToolFailed("no such city")) });

async function resultOf(name: string, argumentsJson: string): Promise<string | undefined> {
  await using router = await FakeRouter.start(callsOnce(name, argumentsJson));
  await using client = new Client(router.target);
  await client.runTools("hi", { tools: { double, breaks, refuses } }).text();
  return router.turns[1]!.spec!.messages.at(-1)!.content;
}

test("a result that is no string goes to the model as JSON", async () => {
  assert.equal(await resultOf("double", '{"n": 2}'), '{"doubled":4}');
});

test("the model is told of a tool that does not exist, of wrong arguments, and what a tool wants it to know", async () => {
  assert.match((await resultOf("other", "{}"))!, /no such tool/);
  assert.match((await resultOf("double", "{"))!, /arguments/);
  assert.equal(await resultOf("refuses", "{}"), '{"error":"no such city"}');
});

test("of another exception the model learns only that the tool failed, and the process is warned", async () => {
  const warned = once(process, "warning") as Promise<[Error & { detail?: string }]>;
  assert.equal(await resultOf("breaks", "{}"), '{"error":"the tool failed"}');
  const [warning] = await warned;
  assert.equal(warning.message, "tool breaks failed");
  assert.match(warning.detail!, /secret/);
});

test("a loop that was left has an answer where its last round has", async () => {
  await using router = await FakeRouter.start(callsOnce("double", '{"n": 2}'));
  await using client = new Client(router.target);
  const run = client.runTools("hi", { tools: { double } });
  for await (const event of run) if (event.case === "finished" && event.value.finishReason === FinishReason.STOP) break;
  assert.equal(await run.text(), "done");
});

test("a loop without a whole answer tells none, however often it is asked", async () => {
  const called = [says("I look"), calls("double", '{"n": 2}'), ...ending(FinishReason.TOOL_CALLS)];
  await using router = await FakeRouter.start((_turn, reply) => reply(...called));
  await using client = new Client(router.target);
  const endless = client.runTools("hi", { tools: { double }, maxRounds: 1 });
  await assert.rejects(endless.text(), TooManyRounds);
  await assert.rejects(endless.text(), TooManyRounds);
  const left = client.runTools("hi", { tools: { double } });
  for await (const event of left) if (event.case === "finished") break;
  await assert.rejects(left.text(), /left before its end/);
});

test("events, messages and usage of all turns are there, on one stream", async () => {
  await using router = await FakeRouter.start(callsOnce("double", '{"n": 2}'));
  await using client = new Client(router.target);
  const run = client.runTools("hi", { tools: { double } });
  const kinds: string[] = [];
  for await (const event of run) kinds.push(event.case);
  assert.deepEqual(kinds, ["toolCallDelta", "usage", "finished", "textDelta", "usage", "finished"]);
  assert.deepEqual(
    run.messages.map(({ role }) => role),
    [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT],
  );
  assert.equal(run.usage.completionTokens, 4);
  assert.equal(router.setups.length, 1);
});

test("leaving the loop cancels the turn that runs", async () => {
  await using router = await FakeRouter.start((_, reply) => reply(says("hm")));
  await using client = new Client(router.target);
  for await (const event of client.runTools("hi", { tools: { double } })) if (event.case === "textDelta") break;
  assert.deepEqual(router.cancelled, [1]);
});

test("a call that is forced is forced in the first round only", async () => {
  await using router = await FakeRouter.start(callsOnce("double", '{"n": 2}'));
  await using client = new Client(router.target);
  await client.runTools("hi", { tools: { double }, toolChoice: { tool: "double" }, parallelToolCalls: false }).text();
  assert.deepEqual(
    router.turns.map(({ spec }) => [spec!.toolChoice?.choice.value, spec!.parallelToolCalls]),
    [
      ["double", false],
      [undefined, false],
    ],
  );
});

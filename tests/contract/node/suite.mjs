// OpenAI's own client for Node against the HTTP door: `node suite.mjs ADDRESS KEY` prints one line of JSON, what went wrong by case.
// The worker answers "hello 🔥".

import assert from "node:assert/strict";
import OpenAI from "openai";

const [address, key] = process.argv.slice(2);
const baseURL = `http://${address}/v1`;
const client = new OpenAI({ baseURL, apiKey: key, maxRetries: 0 });
const ask = { model: "test", messages: [{ role: "user", content: "hi" }] };

const cases = {
  async whole() {
    const answer = await client.chat.completions.create({ ...ask, n: 2, logprobs: true, seed: 1, user: "ann" });
    assert.deepEqual(answer.choices.map((it) => it.message.content), ["hello 🔥", "hello 🔥"]);
    assert.equal(answer.choices[0].finish_reason, "stop");
    assert.equal(answer.choices[0].logprobs.content.length, 10);
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
    assert.ok(answer._request_id);
  },
  async stream() {
    const stream = await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } });
    let text = "", usage = 0, finish = "";
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage += chunk.usage ? 1 : 0;
    }
    assert.deepEqual([text, finish, usage], ["hello 🔥", "stop", 1]);
  },
  async accumulator() {
    const final = await client.chat.completions.stream(ask).finalChatCompletion();
    assert.equal(final.choices[0].message.content, "hello 🔥");
  },
  async structured() {
    const schema = { type: "object", properties: { x: { type: "integer" } } };
    const form = { type: "json_schema", json_schema: { name: "x", schema } };
    assert.ok((await client.chat.completions.create({ ...ask, response_format: form })).choices.length);
  },
  async tools() {
    const tools = [{ type: "function", function: { name: "look", parameters: { type: "object", properties: {} } } }];
    const answer = await client.chat.completions.create({ ...ask, tools, tool_choice: "auto", parallel_tool_calls: false });
    assert.deepEqual([answer.choices[0].finish_reason, answer.choices[0].message.tool_calls], ["stop", undefined]);
    const call = { id: "c", type: "function", function: { name: "look", arguments: "{}" } };
    const messages = [...ask.messages, { role: "assistant", content: null, tool_calls: [call] }, { role: "tool", tool_call_id: "c", content: "seen" }];
    assert.ok((await client.chat.completions.create({ ...ask, messages, tools })).choices.length);
  },
  async parts() {
    const content = [{ type: "text", text: "a" }, { type: "text", text: "b" }];
    assert.ok((await client.chat.completions.create({ ...ask, messages: [{ role: "user", content }] })).choices.length);
  },
  async completions() {
    const answer = await client.completions.create({ model: "test", prompt: ["a", "b"] });
    assert.deepEqual(answer.choices.map((it) => it.text), ["hello 🔥", "hello 🔥"]);
  },
  async models() {
    const names = [];
    for await (const model of client.models.list()) names.push(model.id);
    assert.deepEqual(names, ["test"]);
    assert.equal((await client.models.retrieve("test")).id, "test");
  },
  async errors() {
    await assert.rejects(client.chat.completions.create({ ...ask, model: "nope" }), (it) => it instanceof OpenAI.NotFoundError && it.code === "model_not_found");
    await assert.rejects(client.chat.completions.create({ ...ask, max_token: 8 }), (it) => it instanceof OpenAI.BadRequestError && it.param === "max_token");
    await assert.rejects(client.chat.completions.create({ ...ask, stream: true, n: 0 }), (it) => it instanceof OpenAI.BadRequestError && it.param === "n");
    const nobody = new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 });
    await assert.rejects(nobody.chat.completions.create(ask), OpenAI.AuthenticationError);
  },
  async abort() {
    const stream = await client.chat.completions.create({ ...ask, stream: true });
    for await (const chunk of stream) if (chunk.choices[0].delta.content) break;
  },
};

const faults = {};
for (const [name, run] of Object.entries(cases)) {
  try {
    await run();
  } catch (fault) {
    faults[name] = String(fault.stack ?? fault);
  }
}
console.log(JSON.stringify(faults));

/** README.md's programs and the example service run against a router that answers them, and end by themselves. */

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { FinishReason, Role } from "tidegate";
import { calls, ending, FakeRouter, type Script, says } from "./fake_router.js";

const PACKAGE = fileURLToPath(new URL("../../", import.meta.url));
const PROGRAMS = `${PACKAGE}build/readme`;
const run = promisify(execFile);

/** Answers with a tool call, a city, or a sentence, as the question asks for it. */
const answers: Script = ({ spec }, reply) => {
  if (spec!.tools.length && spec!.messages.at(-1)!.role !== Role.TOOL) {
    reply(calls("weather", '{"city": "Paris"}'), ...ending(FinishReason.TOOL_CALLS));
  } else if (spec!.responseFormat) {
    reply(says('{"name": "Paris", '), says('"population": 2103000}'), ...ending());
  } else {
    reply(says("It "), says("scatters."), ...ending());
  }
};

/** What README's programs print, in order. */
const PRINTED = "It scatters.\nSTOP 2\nParis 2103000\nIt scatters. 4 4\n";

test("README's programs are typed, and do what it says", async () => {
  await using router = await FakeRouter.start(answers);
  const page = await readFile(`${PACKAGE}README.md`, "utf8");
  const programs = [...page.matchAll(/^```ts\n(.*?)^```/gms)].map(([, program]) => program!.replaceAll("127.0.0.1:8500", router.target));
  await mkdir(PROGRAMS, { recursive: true });
  await Promise.all(programs.map((program, at) => writeFile(`${PROGRAMS}/${at}.ts`, program)));
  const files = programs.map((_, at) => `${PROGRAMS}/${at}.ts`);
  const strict = ["--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2023,esnext.disposable", "--types", "node"];
  await run("node_modules/.bin/tsc", ["--ignoreConfig", ...strict, ...files], { cwd: PACKAGE });
  const inTurn = "for (const file of process.argv.slice(1)) await import(file)";
  const { stdout } = await run(process.execPath, ["--input-type=module", "-e", inTurn, ...files.map((file) => file.replace(/ts$/, "js"))]);
  assert.equal(stdout, PRINTED);
});

test("the example service streams answers and stops when it is told to", async () => {
  await using router = await FakeRouter.start(answers);
  const service = spawn(process.execPath, [`${PACKAGE}build/examples/service.js`], {
    env: { ...process.env, TIDEGATE_TARGET: router.target, PORT: "0" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = (await once(createInterface(service.stdout), "line")) as [string];
  const port = /port: (\d+)/.exec(line)![1];
  const response = await fetch(`http://127.0.0.1:${port}`, { method: "POST", body: "Why?", headers: { connection: "close" } });
  assert.equal(await response.text(), "It scatters.");
  service.kill("SIGTERM");
  assert.deepEqual(await once(service, "exit"), [0, null]);
});

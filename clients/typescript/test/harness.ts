/** The conformance harness of the repository, as a child process: a router, scripted workers, and a proxy that can cut. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

/** Root of the repository; this file runs from clients/typescript/build/test. */
export const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));

type Json = Record<string, unknown>;

/** A running harness. */
export class Harness implements AsyncDisposable {
  readonly target: string;
  readonly #control: string;
  readonly #stop: () => Promise<void>;

  private constructor(target: string, control: string, stop: () => Promise<void>) {
    this.target = target;
    this.#control = control;
    this.#stop = stop;
  }

  static async start(): Promise<Harness> {
    const python = process.env["TIDEGATE_PYTHON"] ?? `${ROOT}.venv/bin/python`;
    if (!existsSync(python)) throw new Error(`no ${python}: run \`make install\`, or set TIDEGATE_PYTHON`);
    const paths = ["tests/bench/triton", "clients/python", "."].map((path) => ROOT + path).join(":");
    const child = spawn(python, ["-m", "tests.conformance.serve"], {
      cwd: ROOT,
      env: { ...process.env, PYTHONPATH: paths },
      stdio: ["pipe", "pipe", "inherit"],
    });
    const [line] = (await Promise.race([once(child.stdout, "data"), once(child, "exit")])) as [unknown];
    if (!(line instanceof Uint8Array)) throw new Error(`the harness did not start: exit code ${line}`);
    const { target, control } = JSON.parse(String(line)) as { target: string; control: string };
    return new Harness(target, control, async () => {
      child.stdin.end();
      await once(child, "exit");
    });
  }

  async post<Answer = Json>(path: string, body: Json): Promise<Answer> {
    const response = await fetch(this.#control + path, { method: "POST", body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
    return (await response.json()) as Answer;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#stop();
  }
}

/** The table of cases. */
export async function readCases<Case>(): Promise<Case[]> {
  return JSON.parse(await readFile(`${ROOT}tests/conformance/cases.json`, "utf8")) as Case[];
}

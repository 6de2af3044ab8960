/** The table of cases that all SDKs share, played with this one. tests/conformance/README.md has its words. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
  type ChatOptions,
  Client,
  FinishReason,
  type Session,
  TidegateError,
  tool,
  type ToolLoop,
  type Turn,
  type TurnEvent,
} from "tidegate";
import { Harness, readCases } from "./harness.js";

type Text = string | { text: string; times: number } | Text[];
type Action = { do: string; after_deltas?: number; after_events?: number };
type Failure = { code: string; reason: string; retryable: boolean; fields?: string[] };
type Call = { name: string; arguments: unknown; result?: string };

interface See {
  text?: Text;
  text_starts?: string;
  finish?: string;
  completion_tokens?: number;
  order?: string[];
  error?: Failure;
  within_s?: number;
  value?: unknown;
  ran?: Call[];
}

interface TurnCase {
  text: Text;
  model?: string;
  stop?: string[];
  max_output_tokens?: number;
  deadline_s?: number;
  retries?: number;
  max_rounds?: number;
  trace?: boolean;
  via?: "text";
  into?: "City";
  tools?: string[];
  before?: Action[];
  actions?: Action[];
  see: See;
}

interface Case {
  name: string;
  before?: Action[];
  session?: { model?: string };
  resume_for_s?: number;
  turns: TurnCase[];
}

/** What a caller saw of a turn. */
interface Seen {
  text: string;
  kinds: string[];
  error?: unknown;
  value?: unknown;
  ran: Call[];
  finish?: FinishReason;
  completionTokens?: number;
}

let harness: Harness;
before(async () => void (harness = await Harness.start()));
after(() => harness[Symbol.asyncDispose]());

for (const row of await readCases<Case>()) {
  test(row.name, { timeout: 20_000 }, async () => {
    const { marker, traceparent } = await harness.post<{ marker: string; traceparent: string }>("/begin", { case: row.name });
    const act = (action: Action) => harness.post("/do", { ...action, marker });
    for (const action of row.before ?? []) await act(action);
    await new Player(row, marker, traceparent, act).play();
    assert.deepEqual((await harness.post("/end", { marker }))["faults"], []);
  });
}

class Player {
  readonly #case: Case;
  readonly #marker: string;
  readonly #traceparent: string;
  readonly #act: (action: Action) => Promise<unknown>;

  constructor(row: Case, marker: string, traceparent: string, act: (action: Action) => Promise<unknown>) {
    this.#case = row;
    this.#marker = marker;
    this.#traceparent = traceparent;
    this.#act = act;
  }

  async play(): Promise<void> {
    const { session: options, resume_for_s: resume, turns } = this.#case;
    await using client = new Client(harness.target, { resumeForMs: resume === undefined ? undefined : resume * 1000 });
    await using session = options && client.session(options);
    for (const turn of turns) {
      for (const action of turn.before ?? []) await this.#act(action);
      const since = performance.now();
      const seen = await this.#playTurn(client, session, turn);
      compare(turn.see, seen, (performance.now() - since) / 1000);
    }
  }

  async #playTurn(client: Client, session: Session | undefined, row: TurnCase): Promise<Seen> {
    const seen: Seen = { text: "", kinds: [], ran: [] };
    const options = this.#options(row);
    const text = this.#marker + spell(row.text);
    const turn = row.tools
      ? client.runTools(text, { ...options, tools: makeTools(row.tools, seen), maxRounds: row.max_rounds })
      : (session?.start(text, options) ?? client.chat(text, options));
    try {
      if (row.into) seen.value = await (turn as Turn).value();
      else if (row.via === "text") seen.text = await turn.text();
      else await this.#readEvents(turn, row.actions ?? [], seen, session ?? client);
    } catch (error) {
      seen.error = error;
    }
    return { ...seen, finish: turn.finishReason, completionTokens: turn.usage?.completionTokens ?? -1 };
  }

  #options(row: TurnCase): ChatOptions {
    return {
      model: row.model,
      stop: row.stop,
      maxOutputTokens: row.max_output_tokens,
      timeoutMs: row.deadline_s === undefined ? undefined : row.deadline_s * 1000,
      retries: row.retries,
      ...(row.trace && { headers: { traceparent: this.#traceparent } }),
      ...(row.into && { schema: CITY, parse: parseCity }),
    };
  }

  async #readEvents(turn: Turn | ToolLoop, actions: Action[], seen: Seen, scope: Session | Client): Promise<void> {
    let deltas = 0;
    let events = 0;
    const waiting = [...actions];
    for await (const event of turn) {
      note(event, seen);
      deltas += Number(event.case === "textDelta");
      events += Number(event.case !== "queued");
      while (waiting[0] && deltas >= (waiting[0].after_deltas ?? 0) && events >= (waiting[0].after_events ?? 0)) {
        const action = waiting.shift()!;
        await this.#act(action);
        if (action.do === "cancel") await (turn as Turn).cancel();
        if (action.do === "leave") await scope.close();
        if (action.do === "break" || action.do === "leave") return;
      }
    }
  }
}

function note(event: TurnEvent, seen: Seen): void {
  const kind = event.case.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  if (event.case === "textDelta") seen.text += event.value.text;
  if (kind !== "queued" && kind !== "logprobs" && seen.kinds.at(-1) !== kind) seen.kinds.push(kind);
}

function compare(see: See, seen: Seen, tookS: number): void {
  const { text, text_starts, finish, completion_tokens, order, error, within_s, value, ran } = see;
  assertFailure(error, seen.error);
  if (text !== undefined) assert.equal(seen.text, spell(text));
  if (text_starts !== undefined) assert.ok(seen.text.startsWith(text_starts), seen.text);
  if (finish !== undefined) assert.equal(FinishReason[seen.finish!], finish);
  if (completion_tokens !== undefined) assert.equal(seen.completionTokens, completion_tokens);
  if (order !== undefined) assert.deepEqual(seen.kinds, order);
  if (within_s !== undefined) assert.ok(tookS < within_s, `took ${tookS} s`);
  if (value !== undefined) assert.deepEqual(seen.value, value);
  if (ran !== undefined) assert.deepEqual(seen.ran, ran);
}

function assertFailure(wanted: Failure | undefined, error: unknown): void {
  if (!wanted || !(error instanceof TidegateError)) return assert.equal(error, wanted);
  const { code, reason, retryAfterMs, violations } = error;
  const fields = wanted.fields && { fields: violations.map(({ field }) => field) };
  assert.deepEqual({ code, reason, retryable: retryAfterMs !== undefined, ...fields }, wanted);
}

function spell(text: Text): string {
  if (typeof text === "string") return text;
  return Array.isArray(text) ? text.map(spell).join("") : text.text.repeat(text.times);
}

const CITY = {
  type: "object",
  properties: { name: { type: "string" }, population: { type: "integer" } },
  required: ["name", "population"],
};

function parseCity(value: unknown): { name: string; population: number } {
  const { name, population } = value as Record<string, unknown>;
  if (typeof name !== "string" || !Number.isInteger(population)) throw new TypeError("no city");
  return { name, population: population as number };
}

/** The named functions of the table; they note their calls. */
function makeTools(names: string[], { ran }: Seen) {
  const integer = { type: "integer" };
  const noted = (name: string, run: (input: any) => string) =>
    tool({
      run: (input) => {
        const call: Call = { name, arguments: input };
        ran.push(call);
        return (call.result = run(input));
      },
    });
  const all = {
    add: { ...noted("add", ({ a, b }) => String(a + b)), parameters: object({ a: integer, b: integer }) },
    shout: { ...noted("shout", ({ text }) => text.toUpperCase()), parameters: object({ text: { type: "string" } }) },
    fail: {
      ...noted("fail", () => {
        throw new Error("as told");
      }),
    },
  };
  return Object.fromEntries(Object.entries(all).filter(([name]) => names.includes(name)));
}

function object(properties: Record<string, unknown>) {
  return { type: "object", properties, required: Object.keys(properties) };
}

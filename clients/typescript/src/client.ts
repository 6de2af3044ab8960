/** A router's client. */

import { create } from "@bufbuild/protobuf";
import type { Metadata } from "@grpc/grpc-js";
import { Channel } from "./channel.js";
import { Credentials, type CredentialOptions, type Headers } from "./credentials.js";
import { CountTokensRequestSchema, type CountTokensResponse } from "./gen/tidegate/v1/chat_service_pb.js";
import { type Input, type SamplingOptions, toMessages, toSampling, type TurnOptions } from "./messages.js";
import { RetryBudget } from "./retry.js";
import { Session } from "./session.js";
import { toDuration } from "./time.js";
import { ToolLoop, type ToolLoopOptions } from "./tool_loop.js";
import type { Turn } from "./turn.js";

/** Options of a stream. */
export interface StreamOptions {
  /** Sent with each call, `traceparent` for example; added to the client's. */
  readonly headers?: Headers | undefined;
  /** How long turns outlive a lost connection, to be taken up again; 0: not at all. The client's when left out. */
  readonly resumeForMs?: number | undefined;
}

/** Options of a client. */
export interface ClientOptions extends CredentialOptions, StreamOptions {}

/** Options of a session; model and sampling are defaults for its turns. */
export interface SessionOptions extends StreamOptions {
  readonly model?: string | undefined;
  readonly sampling?: SamplingOptions | undefined;
}

/** Options of a turn that has a stream of its own. */
export interface ChatOptions<T = unknown> extends TurnOptions<T>, StreamOptions {}

const DEFAULT_RESUME_MS = 30_000;
const TARGET_VARIABLE = "TIDEGATE_TARGET";
const DEFAULT_TARGET = "127.0.0.1:8500";

/** A connection to a router, `host:port`: when left out, the environment's `TIDEGATE_TARGET`, else that of `tidegate up`. */
export class Client implements AsyncDisposable {
  readonly #options: ClientOptions;
  readonly #credentials: Credentials;
  readonly #channel: Channel;
  readonly #budget = new RetryBudget();
  readonly #sessions = new Set<Session>();

  /** Connects with the first call. Throws PlaintextRefused when a key or token would cross a network unencrypted. */
  constructor(given = "", options: ClientOptions = {}) {
    const target = given || process.env[TARGET_VARIABLE] || DEFAULT_TARGET;
    this.#options = options;
    this.#credentials = new Credentials(target, options);
    this.#channel = new Channel(target, this.#credentials);
  }

  /** Starts one turn. What it fails with is thrown where it is read. */
  chat<T = unknown>(input: Input, options: ChatOptions<T> = {}): Turn<T> {
    const { headers, resumeForMs, ...turn } = options;
    return this.session({ headers, resumeForMs }).startOnly(input, turn);
  }

  /** A stream for many turns; opened with the first of them. */
  session(options: SessionOptions = {}): Session {
    const { model = "", sampling, headers, resumeForMs = this.#options.resumeForMs ?? DEFAULT_RESUME_MS } = options;
    const setup = {
      model,
      ...(sampling && { sampling: toSampling(sampling) }),
      ...(resumeForMs > 0 && { resumeFor: toDuration(resumeForMs) }),
    };
    const opening = { channel: this.#channel, metadata: () => this.#metadata(headers), setup };
    const session = new Session(opening, this.#budget, () => this.#sessions.delete(session));
    this.#sessions.add(session);
    return session;
  }

  /** Lets the model call tools, runs them, and gives it their results, until it answers. */
  runTools(input: Input, options: ToolLoopOptions & StreamOptions): ToolLoop {
    const { headers, resumeForMs, ...rest } = options;
    return new ToolLoop(() => this.session({ headers, resumeForMs }), input, rest);
  }

  /** Counts the tokens of a prompt as the router would; runs no model. */
  async countTokens(input: Input, options: { model?: string; timeoutMs?: number; headers?: Headers } = {}): Promise<CountTokensResponse> {
    const request = create(CountTokensRequestSchema, { model: options.model ?? "", messages: toMessages(input) });
    const deadline = options.timeoutMs === undefined ? Infinity : Date.now() + options.timeoutMs;
    return this.#channel.countTokens(request, await this.#metadata(options.headers), { deadline });
  }

  /** Cancels what runs and ends the connection. */
  async close(): Promise<void> {
    await Promise.all([...this.#sessions].map((session) => session.close()));
    this.#channel.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #metadata(headers: Headers | undefined): Promise<Metadata> {
    return this.#credentials.metadata(this.#options.headers, headers);
  }
}

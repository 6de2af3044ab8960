/** A router made of a script: what it answers to a turn is up to the test. */

import { create, type DescMessage, type DescMethod, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { Metadata, Server, ServerCredentials, type ServerDuplexStream, type ServerUnaryCall, type sendUnaryData } from "@grpc/grpc-js";
import { ErrorInfoSchema } from "#src/gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "#src/gen/google/rpc/status_pb.js";
import {
  ChatService,
  type ConverseRequest,
  ConverseResponseSchema,
  type CountTokensRequest,
  type Setup,
  type StartTurn,
} from "#src/gen/tidegate/v1/chat_service_pb.js";
import { EventSchema, FinishReason } from "#src/gen/tidegate/v1/event_pb.js";

export type EventInit = MessageInitShape<typeof EventSchema>["event"] & object;
type Call = ServerDuplexStream<ConverseRequest, MessageInitShape<typeof ConverseResponseSchema>>;

/** Plays a turn; `reply` sends a frame of its events, `end` ends the stream with OK. */
export type Script = (turn: StartTurn, reply: (...events: EventInit[]) => void, end: () => void) => void;

export class FakeRouter implements AsyncDisposable {
  readonly headers: Metadata[] = [];
  readonly setups: Setup[] = [];
  readonly turns: StartTurn[] = [];
  readonly cancelled: number[] = [];
  target = "";
  readonly #server = new Server();
  readonly #script: Script;
  readonly #answersCancels: boolean;

  private constructor(script: Script, answersCancels: boolean) {
    this.#script = script;
    this.#answersCancels = answersCancels;
    const { converse, countTokens } = ChatService.method;
    this.#server.addService(
      { converse: definition(converse), countTokens: definition(countTokens) },
      {
        converse: (call: Call) => this.#converse(call),
        countTokens: (call: ServerUnaryCall<CountTokensRequest, unknown>, done: sendUnaryData<unknown>) =>
          done(null, { promptTokens: call.request.messages.length, contextTokens: 2048 }),
      },
    );
  }

  static async start(script: Script, answersCancels = true): Promise<FakeRouter> {
    const router = new FakeRouter(script, answersCancels);
    const port = await new Promise<number>((resolve, reject) =>
      router.#server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
        error ? reject(error) : resolve(bound),
      ),
    );
    router.target = `127.0.0.1:${port}`;
    return router;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.forceShutdown();
  }

  #converse(call: Call): void {
    this.headers.push(call.metadata);
    const reply = (turn: number, ...events: EventInit[]) => void call.write({ events: events.map((event) => ({ turn, event })) });
    call.on("error", () => undefined);
    call.on("end", () => call.end());
    call.on("data", ({ message: { case: kind, value } }: ConverseRequest) => {
      if (kind === "setup") {
        this.setups.push(value);
        reply(0, { case: "ready", value: { streamId: "fake", model: "fake" } });
      } else if (kind === "start") {
        this.turns.push(value);
        this.#script(
          value,
          (...events) => reply(value.turn, ...events),
          () => call.end(),
        );
      } else if (kind === "cancel") {
        this.cancelled.push(value.turn);
        if (this.#answersCancels) reply(value.turn, ...ending(FinishReason.CANCELLED));
      }
    });
  }
}

/** A piece of the answer. */
export function says(text: string): EventInit {
  return { case: "textDelta", value: { text } };
}

/** A whole tool call. */
export function calls(name: string, argumentsJson: string): EventInit {
  return { case: "toolCallDelta", value: { callId: `call-${name}`, name, argumentsJson } };
}

/** How a turn ends that completes. */
export function ending(finishReason = FinishReason.STOP): EventInit[] {
  return [
    { case: "usage", value: { promptTokens: 3, completionTokens: 2 } },
    { case: "finished", value: { finishReason } },
  ];
}

/** How a turn ends that fails. */
export function fails(code: number, reason: string, domain = "tidegate.dev"): EventInit {
  const details = [anyPack(ErrorInfoSchema, create(ErrorInfoSchema, { reason, domain }))];
  return { case: "failed", value: { status: create(StatusSchema, { code, message: "as told", details }) } };
}

function definition(method: DescMethod) {
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    requestStream: method.methodKind === "bidi_streaming",
    responseStream: method.methodKind === "bidi_streaming",
    requestSerialize: writer(method.input),
    requestDeserialize: (data: Buffer) => fromBinary(method.input, data),
    responseSerialize: writer(method.output),
    responseDeserialize: (data: Buffer) => fromBinary(method.output, data),
  };
}

function writer(schema: DescMessage) {
  return (message: object) => Buffer.from(toBinary(schema, create(schema, message as never)));
}

/** The gRPC side: ChatService's methods on a channel, and a fresh connection when the router behind it goes away. */

import { type DescMessage, type DescMethod, fromBinary, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { type CallOptions, Client as GrpcClient, type ClientDuplexStream, type Metadata, type ServiceError } from "@grpc/grpc-js";
import type { Credentials } from "./credentials.js";
import {
  ChatService,
  type ConverseResponse,
  type CountTokensRequest,
  type CountTokensResponse,
} from "./gen/tidegate/v1/chat_service_pb.js";
import { fromCall } from "./status.js";

/** A Converse call. Its requests are serialised by who writes them: one that cannot be must not end the call. */
export type Call = ClientDuplexStream<Uint8Array, ConverseResponse>;

const OPTIONS = {
  "grpc.max_receive_message_length": -1,
  "grpc.enable_retries": 0, // a turn costs money; what is tried again is decided where the reason is known
  "grpc.use_local_subchannel_pool": 1, // else a fresh channel would take up the connection that it replaces
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 10_000,
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 2_000,
};

/** Calls to one router. Nothing is connected before the first. */
export class Channel {
  readonly #target: string;
  readonly #credentials: Credentials;
  readonly #used = new WeakMap<Call, GrpcClient>();
  #client: GrpcClient;

  constructor(target: string, credentials: Credentials) {
    this.#target = target;
    this.#credentials = credentials;
    this.#client = this.#connect();
  }

  /** Opens a Converse call. */
  converse(metadata: Metadata): Call {
    const { converse } = ChatService.method;
    const call = this.#client.makeBidiStreamRequest(path(converse), toBuffer, reader(converse.output), metadata);
    this.#used.set(call, this.#client);
    return call;
  }

  /** The router behind this call is going: further calls go over a new connection; those on the old one run to their end. */
  leave(call: Call): void {
    if (this.#used.get(call) !== this.#client) return;
    this.#client.close();
    this.#client = this.#connect();
  }

  /** Calls CountTokens. */
  countTokens(request: CountTokensRequest, metadata: Metadata, options: CallOptions): Promise<CountTokensResponse> {
    const { countTokens } = ChatService.method;
    const write = (message: CountTokensRequest) => toBuffer(toBinary(countTokens.input, message));
    return new Promise((resolve, reject) => {
      const done = (error: ServiceError | null, response?: CountTokensResponse) =>
        response ? resolve(response) : reject(fromCall(error!));
      this.#client.makeUnaryRequest(path(countTokens), write, reader(countTokens.output), request, metadata, options, done);
    });
  }

  /** Takes no more calls; those that run go on. */
  close(): void {
    this.#client.close();
  }

  #connect(): GrpcClient {
    const { channel, serverName } = this.#credentials;
    return new GrpcClient(this.#target, channel, { ...OPTIONS, ...(serverName && { "grpc.ssl_target_name_override": serverName }) });
  }
}

function path(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function reader<Desc extends DescMessage>(schema: Desc): (data: Buffer) => MessageShape<Desc> {
  return (data) => fromBinary(schema, data);
}

function toBuffer({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

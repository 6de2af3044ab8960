/**
 * A Converse stream that survives its connections.
 *
 * Frames are numbered. When a connection breaks, a new one takes the stream up behind the last frame that arrived, and the router sends
 * what came after it, so turns see neither gap nor repetition. In the other direction nothing is acknowledged: a `start` is sent again
 * until an event of its turn has come, a `cancel` until the turn has ended; the router ignores those it has. Where the router does not
 * offer to resume, or its time is over, the stream is lost.
 */

import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import type { Metadata, StatusObject } from "@grpc/grpc-js";
import type { Call, Channel } from "./channel.js";
import { streamLost, type TidegateError } from "./errors.js";
import { ConverseRequestSchema, type ConverseResponse, type SetupSchema } from "./gen/tidegate/v1/chat_service_pb.js";
import type { Event, Ready } from "./gen/tidegate/v1/event_pb.js";
import type { TurnSpec } from "./gen/tidegate/v1/turn_pb.js";
import { fromCall, fromRouter, isBroken } from "./status.js";
import { Gate, toMs, within } from "./time.js";

/** What a stream is opened with. */
export interface Opening {
  readonly channel: Channel;
  readonly metadata: () => Promise<Metadata>;
  readonly setup: MessageInitShape<typeof SetupSchema>;
}

/** Who is told what happens on a stream. */
export interface Listener {
  event(event: Event): void;
  /** Turns that have not ended by now never will. */
  end(stream: Stream, error: TidegateError): void;
}

type Message = MessageInitShape<typeof ConverseRequestSchema>["message"] & object;

const CLOSE_MS = 1_000;
const BACKOFF_MS = 50;
const LONGEST_BACKOFF_MS = 1_000;

/** What a router answers that does not take a stream: another one may, or none will. */
const ELSEWHERE = new Set(["DRAINING", "RESUME_UNAVAILABLE"]);
const GONE = new Set(["STREAM_UNKNOWN", "STREAM_TAKEN", "RESUME_GAP"]);

/** A stream, whatever connection it has. Connects at once. */
export class Stream {
  readonly #opening: Opening;
  readonly #listener: Listener;
  readonly #starts = new Map<number, Uint8Array>();
  readonly #cancels = new Map<number, Uint8Array>();
  readonly #over = new Gate();
  #call: Call | undefined;
  #ready: Ready | undefined;
  #lastFrame = 0n;
  #breaks = 0;
  #resumptions = 0;
  #giveUp: NodeJS.Timeout | undefined;
  #goingAway = false;
  #closing = false;

  constructor(opening: Opening, listener: Listener) {
    this.#opening = opening;
    this.#listener = listener;
    void this.#connect();
  }

  /** Whether new turns may be started here. */
  get takesTurns(): boolean {
    return !this.#goingAway && !this.#closing && !this.#over.isOpen;
  }

  /** Sends a turn. Throws when it cannot be serialised. */
  start(turn: number, spec: TurnSpec): void {
    this.#send(this.#starts, turn, serialise({ case: "start", value: { turn, spec } }));
  }

  /** Asks for the end of a turn. */
  cancel(turn: number): void {
    this.#send(this.#cancels, turn, serialise({ case: "cancel", value: { turn } }));
  }

  /** No more turns come. Waits for the router to end the stream, but not for long. */
  async close(): Promise<void> {
    this.#closing = true;
    if (!this.#call) this.#end(streamLost("the stream was closed"));
    if (this.#call) this.#finish(this.#call);
    if (!(await within(this.#over.opened, CLOSE_MS))) this.#call?.cancel();
  }

  #send(kept: Map<number, Uint8Array>, turn: number, request: Uint8Array): void {
    kept.set(turn, request);
    this.#call?.write(request);
  }

  async #connect(): Promise<void> {
    let metadata: Metadata;
    try {
      metadata = await this.#opening.metadata();
    } catch (error) {
      return this.#end(error as TidegateError);
    }
    if (this.#over.isOpen) return;
    const call = (this.#call = this.#opening.channel.converse(metadata));
    call.on("error", () => undefined); // `status` tells the same, and a good end too
    call.on("status", (end: StatusObject) => this.#connectionEnded(call, end));
    call.on("data", (frame: ConverseResponse) => this.#take(call, frame));
    call.write(serialise({ case: "setup", value: this.#setup() }));
    for (const request of [...this.#starts.values(), ...this.#cancels.values()]) call.write(request);
    if (this.#closing) this.#finish(call);
  }

  /** Says that nobody comes back to the stream, which its router need not keep then, and no more. */
  #finish(call: Call): void {
    if ((this.#ready ?? this.#opening.setup).resumeFor) call.write(serialise({ case: "leave", value: {} }));
    call.end();
  }

  #setup(): MessageInitShape<typeof SetupSchema> {
    if (!this.#ready) return this.#opening.setup;
    const attempt = ++this.#resumptions; // one that is late on its way must not take the stream from a newer one
    return { resume: { streamId: this.#ready.streamId, afterSequence: this.#lastFrame, attempt } };
  }

  #take(call: Call, frame: ConverseResponse): void {
    this.#breaks = 0;
    clearTimeout(this.#giveUp);
    this.#giveUp = undefined;
    if (frame.sequence !== 0n && frame.sequence <= this.#lastFrame) return; // how a resumed stream begins
    this.#lastFrame = frame.sequence;
    for (const event of frame.events) this.#takeEvent(call, event);
  }

  #takeEvent(call: Call, event: Event): void {
    const { case: kind, value } = event.event;
    if (kind === "ready") this.#ready = value;
    if (kind === "goAway") this.#leave(call);
    this.#starts.delete(event.turn);
    if (kind === "finished" || kind === "failed") this.#cancels.delete(event.turn);
    this.#listener.event(event);
  }

  #leave(call: Call): void {
    this.#goingAway = true;
    this.#opening.channel.leave(call);
  }

  #connectionEnded(call: Call, end: StatusObject): void {
    this.#call = undefined;
    const told = fromRouter(end);
    const elsewhere = told !== undefined && ELSEWHERE.has(told.reason);
    if (elsewhere) this.#opening.channel.leave(call);
    if (this.#mayResume() && (elsewhere || (!told && isBroken(end)))) return this.#reconnect();
    if (told && !GONE.has(told.reason)) return this.#end(told);
    this.#end(this.#ready ? streamLost(end.details || "the stream ended before the turn") : fromCall(end));
  }

  #mayResume(): boolean {
    return this.#ready?.resumeFor !== undefined && !this.#closing && !this.#over.isOpen;
  }

  #reconnect(): void {
    this.#giveUp ??= setTimeout(() => this.#abandon(), toMs(this.#ready!.resumeFor!));
    const wait = Math.min(BACKOFF_MS * 2 ** this.#breaks++, LONGEST_BACKOFF_MS) * Math.random();
    setTimeout(() => void this.#connect(), wait);
  }

  #abandon(): void {
    this.#end(streamLost("the connection broke and no new one came in time"));
    this.#call?.cancel();
  }

  #end(error: TidegateError): void {
    if (this.#over.isOpen) return;
    clearTimeout(this.#giveUp);
    this.#over.open();
    this.#listener.end(this, error);
  }
}

function serialise(message: Message): Uint8Array {
  return toBinary(ConverseRequestSchema, create(ConverseRequestSchema, { message }));
}

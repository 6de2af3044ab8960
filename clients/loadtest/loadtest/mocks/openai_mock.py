"""A mock of an OpenAI-compatible engine: every answer gets a token in each step, all in the same burst, as from in-flight batching.

    python -m loadtest.mocks.openai_mock --port 9000 --step-ms 20

It knows just enough HTTP for the gateways in front of it (keep-alive, content-length bodies) and writes prepared bytes, so that on a small
machine the gateway's cost is what is seen. Any GET is answered as a model list, which is also what health checks take for health.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import cast

import uvloop

MODEL = "mock"
"""The only model's name; requests may name any."""


def write_chunk(data: bytes) -> bytes:
    """HTTP's chunked coding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def write_event(choices: list[dict[str, object]], **more: object) -> bytes:
    """One server-sent event with a completion chunk."""
    chunk = {"id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": choices, **more}
    return write_chunk(b"data: " + json.dumps(chunk).encode() + b"\n\n")


ROLE = write_event([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
TOKENS = [write_event([{"index": 0, "delta": {"content": f" {word}"}, "finish_reason": None}]) for word in ("one", "two", "three")]
"""Different ones in turn: LiteLLM ends an answer that repeats a chunk a hundred times."""
FINISH = write_event([{"index": 0, "delta": {}, "finish_reason": "length"}])
DONE = write_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def write_json(body: object) -> bytes:
    """A whole response."""
    data = json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data)


MODELS = write_json({"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "mock"}]})


@dataclass(slots=True, eq=False)
class Answer:
    """One answer under way."""

    transport: asyncio.WriteTransport
    prompt_tokens: int
    tokens: int
    left: int = 0

    def __post_init__(self) -> None:
        self.left = self.tokens


@dataclass(slots=True)
class Engine:
    """Steps; in each, every answer gets a token."""

    step_s: float
    answers: set[Answer] = field(default_factory=set)
    made: int = 0

    async def run(self) -> None:
        """Steps for ever, at a fixed rate: a late step does not delay the next."""
        due = time.perf_counter()
        while True:
            due = max(due + self.step_s, time.perf_counter() - self.step_s)
            await asyncio.sleep(due - time.perf_counter())
            self.step()

    def step(self) -> None:
        """One burst."""
        self.made += len(self.answers)
        for answer in [answer for answer in self.answers if not self._advance(answer)]:
            self.answers.discard(answer)

    def _advance(self, answer: Answer) -> bool:
        """Whether it goes on."""
        if answer.transport.is_closing():
            return False
        token = TOKENS[answer.left % len(TOKENS)]
        answer.left -= 1
        if answer.left:
            answer.transport.write(token)
            return True
        counts = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.tokens}
        usage = {**counts, "total_tokens": answer.prompt_tokens + answer.tokens}
        answer.transport.write(token + FINISH + write_event([], usage=usage) + DONE)
        return False


class Server(asyncio.Protocol):
    """One connection."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._received = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's does not say that it is one

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (request := self._take_request()) is not None:
            self._answer(*request)

    def _take_request(self) -> tuple[bytes, bytes] | None:
        """A complete request's first line and body."""
        head, separator, rest = self._received.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        length = int(headers.get(b"content-length", b"0"))
        if not separator or len(rest) < length:
            return None
        self._received = rest[length:]
        return first, rest[:length]

    def _answer(self, first: bytes, body: bytes) -> None:
        assert self._transport is not None
        if not first.startswith(b"POST"):
            self._transport.write(MODELS)
            return
        asked = json.loads(body)
        prompt_tokens = sum(len(str(message.get("content", "")).split()) for message in asked.get("messages", ()))
        self._transport.write(STREAM_HEAD + ROLE)
        self._engine.answers.add(Answer(self._transport, prompt_tokens, int(asked.get("max_tokens") or 64)))


@asynccontextmanager
async def run_mock(step_s: float, port: int = 0) -> AsyncIterator[tuple[Engine, int]]:
    """Serves on loopback; gives the engine and the port."""
    engine = Engine(step_s)
    server = await asyncio.get_running_loop().create_server(lambda: Server(engine), "127.0.0.1", port)
    stepping = asyncio.create_task(engine.run())
    try:
        yield engine, server.sockets[0].getsockname()[1]
    finally:
        stepping.cancel()
        await asyncio.wait({stepping})
        server.close()


async def serve(step_s: float, port: int) -> None:
    """Serves until cancelled; says where on standard output."""
    async with run_mock(step_s, port) as (_, bound):
        print(f"mock ready on 127.0.0.1:{bound}", flush=True)
        await asyncio.Event().wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the process's exit code."""
    parser = argparse.ArgumentParser(description="A mock OpenAI-compatible engine.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--step-ms", type=float, default=20.0)
    arguments = parser.parse_args(argv)
    with suppress(KeyboardInterrupt):
        uvloop.run(serve(arguments.step_ms / 1e3, arguments.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())

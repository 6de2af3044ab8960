"""Targets and servers that play scripts to the harness."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from loadtest.mocks.openai_mock import DONE, FINISH, ROLE, STREAM_HEAD, TOKEN
from loadtest.record import Outcome, Record, Usage
from loadtest.request import Message, Request


def make_request(number: int = 0, at: float = 0.0, *, tokens: int = 8, tenant: str = "", follow_up: Request | None = None) -> Request:
    """A request that asks little."""
    return Request(number, at, (Message("user", "hello there"),), tokens, tenant, follow_up)


def make_record(
    due: float = 0.0, arrivals: Sequence[float] = (), *, number: int = 0, tenant: str = "", usage: Usage | None = None, reason: str = ""
) -> Record:
    """A record of an answer that came at these moments; with a reason, of one that failed after them."""
    record = Record(number, tenant, due)
    record.send(due)
    for at in arrivals:
        record.arrive(at)
    record.usage = usage
    end = arrivals[-1] if arrivals else due
    if reason:
        record.fail(end, reason)
    else:
        record.complete(end)
    return record


class ScriptedTarget:
    """Plays to each request what `script` gives for it: seconds to wait, or how it ends; each wait but the last is followed by a token."""

    def __init__(self, script: Callable[[Request], Iterable[float | Outcome]]) -> None:
        self.asked: list[Request] = []
        self.cancelled = 0
        self._script = script

    async def run(self, request: Request, record: Record) -> None:
        self.asked.append(request)
        record.send(time.perf_counter())
        try:
            for step in self._script(request):
                if isinstance(step, Outcome):
                    record.fail(time.perf_counter(), "SCRIPTED", outcome=step)
                    return
                await asyncio.sleep(step)
                record.arrive(time.perf_counter(), "x")
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        record.complete(time.perf_counter())


Step = bytes | float | None
"""Bytes to send, seconds to wait, or None for a reset connection."""

HEAD, FIRST, WORD, LAST, END = STREAM_HEAD, ROLE, TOKEN, FINISH, DONE


@asynccontextmanager
async def serve_http(*steps: Step) -> AsyncIterator[str]:
    """An HTTP server that plays these steps to every request; gives its URL."""
    playing: set[asyncio.Task[None]] = set()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        playing.add(asyncio.current_task())  # type: ignore[arg-type]
        await reader.readuntil(b"\r\n\r\n")
        for step in steps:
            if step is None:
                writer.transport.abort()
            elif isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            else:
                await asyncio.sleep(step)
        writer.close()

    server = await asyncio.start_server(play, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)

"""Targets and servers that play scripts to the harness."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress

from loadtest.mocks.openai_mock import DONE, FINISH, ROLE, STREAM_HEAD, TOKENS
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

Script = Callable[[bytes], AsyncIterator[Step]]
"""The steps for a request, by its body."""

HEAD, FIRST, WORD, LAST, END = STREAM_HEAD, ROLE, TOKENS[0], FINISH, DONE


def always(*steps: Step) -> Script:
    """The same steps for every request."""

    async def script(body: bytes) -> AsyncIterator[Step]:
        for step in steps:
            yield step

    return script


@asynccontextmanager
async def serve_http(script: Script) -> AsyncIterator[str]:
    """An HTTP server that plays one request a connection; gives its URL."""
    playing: set[asyncio.Task[None]] = set()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        playing.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
            with suppress(asyncio.CancelledError):  # else asyncio logs the end of a script that hangs
                await _play(script(await reader.readexactly(length)), writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(play, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)


async def _play(steps: AsyncIterator[Step], writer: asyncio.StreamWriter) -> None:
    async for step in steps:
        if step is None:
            writer.transport.abort()
        elif isinstance(step, bytes):
            writer.write(step)
        else:
            await asyncio.sleep(step)

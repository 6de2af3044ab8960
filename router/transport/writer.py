"""The sending side of a call that answers with frames, by whatever door it came."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import grpc

from router.errors import TidegateError

Context = grpc.aio.ServicerContext[Any, Any]

Write = Callable[[Any], Awaitable[None]]
"""Sends one frame; returns when the connection takes another."""


class CallerLeft(Exception):
    """The connection is gone; there is nobody to answer."""


class FrameSource(Protocol):
    """Where frames come from."""

    async def take(self) -> Any:
        """The next frame, waiting for one; None when no more come."""


async def begin_answer(context: Context) -> Write:
    """Sends the headers of a stream's answer, and gives what writes its messages.

    Without it grpc.aio sends them with the first message, and when that write is interrupted it sends them again with the status, which
    C-core refuses: the call would never end, and its caller wait for ever.
    """
    await context.send_initial_metadata(())
    return context.write


class Writer:
    """Sends frames, one at a time, from the call's own task."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self.task = _current_task()
        self._fault: TidegateError | CallerLeft | None = None
        self.writing = False
        self.changed = time.monotonic()

    async def send_all(self, source: FrameSource) -> None:
        """Returns when no more frames come. Raises what it was interrupted with."""
        try:
            while (frame := await source.take()) is not None:
                self.writing, self.changed = True, time.monotonic()
                await self._write(frame)
                self.writing, self.changed = False, time.monotonic()
        except asyncio.CancelledError:
            if self._fault is None or self.task.uncancel() > 0:
                raise  # the caller is gone, maybe on top of an interruption
            raise self._fault from None

    def interrupt(self, error: TidegateError | CallerLeft) -> None:
        """Ends `send_all` with an error, in the middle of a write too."""
        self._fault = error
        self.task.cancel()


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None, "called from a coroutine"
    return task

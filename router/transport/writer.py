"""The sending side of an RPC that answers with frames."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

import grpc

from router.errors import TidegateError

Context = grpc.aio.ServicerContext[Any, Any]


class FrameSource(Protocol):
    """Where frames come from."""

    async def take(self) -> Any:
        """The next frame, waiting for one; None when no more come."""


class Writer:
    """Sends frames, one at a time, from the RPC's own task."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.task = _current_task()
        self._fault: TidegateError | None = None
        self.writing = False
        self.changed = time.monotonic()

    async def send_all(self, source: FrameSource) -> None:
        """Returns when no more frames come. Raises what it was interrupted with."""
        try:
            while (frame := await source.take()) is not None:
                self.writing, self.changed = True, time.monotonic()
                await self._context.write(frame)
                self.writing, self.changed = False, time.monotonic()
        except asyncio.CancelledError:
            if self._fault is None or self.task.uncancel() > 0:
                raise  # the caller is gone, maybe on top of an interruption
            raise self._fault from None

    def interrupt(self, error: TidegateError) -> None:
        """Ends `send_all` with an error, in the middle of a write too."""
        self._fault = error
        self.task.cancel()


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None, "called from a coroutine"
    return task

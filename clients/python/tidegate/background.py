"""An event loop in a thread of its own, for programs that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar, cast

T = TypeVar("T")


class BackgroundLoop:
    """Runs from its making to `stop`. Its methods may be called from any thread but its own."""

    def __init__(self) -> None:
        runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = runner.get_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=_run, args=(runner, self._stopping), name="tidegate", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it has not been stopped."""
        return not self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine to its end. When the waiting is interrupted, so is the coroutine."""
        if not self.is_running:
            work.close()
            raise RuntimeError("the client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Iterates what is asynchronous. Leaving the loop early closes it, before the program goes on."""
        generator = cast(AsyncGenerator[T, None], items)
        try:
            while True:
                try:
                    yield self.run(_next(generator))
                except StopAsyncIteration:
                    return
        finally:
            if self.is_running:
                self.run(generator.aclose())

    def stop(self) -> None:
        """Ends the loop, what runs on it, and its thread."""
        self._ask_to_stop()
        self._thread.join()

    def _ask_to_stop(self) -> None:
        if self.is_running:
            self._loop.call_soon_threadsafe(self._stopping.set)

    def __del__(self) -> None:
        self._ask_to_stop()


def _run(runner: asyncio.Runner, stopping: asyncio.Event) -> None:
    with runner:
        runner.run(stopping.wait())


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)

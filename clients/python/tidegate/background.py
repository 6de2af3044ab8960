"""An event loop in a thread of its own, for programs that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, Coroutine, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

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
        future = self._submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterable[T]) -> Iterator[T]:
        """Iterates what is asynchronous, which does not wait for its reader. Leaving the loop early ends it before the program goes on."""
        arrived: SimpleQueue[T | _Over] = SimpleQueue()
        pump = self._submit(_pump(items, arrived))
        over = False
        try:
            while not isinstance(item := arrived.get(), _Over):
                yield item
            over = True
            pump.result()
        finally:
            if not over and pump.cancel():
                while not isinstance(arrived.get(), _Over):
                    pass

    def stop(self) -> None:
        """Ends the loop, what runs on it, and its thread."""
        self._ask_to_stop()
        self._thread.join()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if not self.is_running:
            work.close()
            raise RuntimeError("the client is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _ask_to_stop(self) -> None:
        if self.is_running:
            self._loop.call_soon_threadsafe(self._stopping.set)

    def __del__(self) -> None:
        self._ask_to_stop()


def _run(runner: asyncio.Runner, stopping: asyncio.Event) -> None:
    with runner:
        runner.run(stopping.wait())


class _Over:
    """Stands behind the last item."""


async def _pump(items: AsyncIterable[T], arrived: SimpleQueue[T | _Over]) -> None:
    try:
        async for item in items:
            arrived.put(item)
    finally:
        arrived.put(_Over())

"""Keeps a fleet's workers running: follows where they are, connects to those that come, and lets those go that have left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

from router.routing.discovery import Source, follow
from router.routing.fleet import Fleet
from router.upstream.link import cancel_all
from router.upstream.worker import Worker

_LOOK_S = 0.5


class Keeper:
    """One fleet's. Use it inside `running()`."""

    def __init__(
        self, fleet: Fleet, source: Source, grace_s: float, on_join: Callable[[Worker], None], on_leave: Callable[[Worker], None]
    ) -> None:
        """A worker that has left has `grace_s` for the turns that it runs."""
        self._fleet = fleet
        self._source = source
        self._grace_s = grace_s
        self._on_join = on_join
        self._on_leave = on_leave
        self._tasks: dict[Worker, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Keeper]:
        """Ends all connections when left."""
        keeping = {asyncio.create_task(self._follow()), asyncio.create_task(self._look_for_gone())}
        try:
            yield self
        finally:
            await cancel_all(keeping)
            await cancel_all(set(self._tasks.values()))

    async def _follow(self) -> None:
        async with aclosing(follow(self._source)) as sets:
            async for addresses in sets:
                for worker in self._fleet.update(addresses):
                    self._on_join(worker)
                    self._tasks[worker] = asyncio.create_task(worker.run())

    async def _look_for_gone(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            for worker in self._fleet.remove_gone(self._grace_s):
                self._on_leave(worker)
                await cancel_all({self._tasks.pop(worker)})

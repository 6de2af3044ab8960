"""One model's workers, the queue in front of them, and what becomes of turns when they are too many."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from router.admission.queue import AdmissionQueue
from router.degradation.ladder import Ladder
from router.routing.book import MemoryBook
from router.routing.fleet import Fleet
from router.routing.keeper import Keeper
from router.routing.redis_book import RedisBook


@dataclass(frozen=True, slots=True)
class Pool:
    """What a model's turns wait for, and where they run."""

    fleet: Fleet
    queue: AdmissionQueue
    ladder: Ladder
    keeper: Keeper
    book: MemoryBook | RedisBook

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Pool]:
        """Keeps the workers connected. Raises StoreRefused when the Redis that routers share cannot be used."""
        async with AsyncExitStack() as stack:
            if isinstance(self.book, RedisBook):
                await stack.enter_async_context(self.book)
            await stack.enter_async_context(self.keeper.running())
            yield self

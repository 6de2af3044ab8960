"""A clock that is set by hand, and stores that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from router.quota.limits import Amounts, Bounds
from router.quota.memory import MemoryStore
from router.quota.store import Granted, Refused, StoreAway


class HandClock:
    """Milliseconds."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


class RemoteStore:
    """Counters that are out of reach while `away`. What is settled is only noted."""

    def __init__(self, clock: HandClock) -> None:
        self.counters = MemoryStore(clock)
        self.away = False
        self.settled: dict[str, Amounts] = {}

    async def reserve(self, hold_id: str, bounds: Bounds, amounts: Amounts, read_counted: Callable[[], Amounts]) -> Granted | Refused:
        self._check()
        return await self.counters.reserve(hold_id, bounds, amounts, read_counted)

    async def extend(self, hold_id: str, bounds: Bounds, more: Amounts) -> Granted | Refused:
        self._check()
        return await self.counters.extend(hold_id, bounds, more)

    async def settle(self, hold_id: str, bounds: Bounds, actual: Amounts) -> None:
        self.settled.setdefault(hold_id, actual)

    def _check(self) -> None:
        if self.away:
            raise StoreAway(maybe_done=True)


class NeverStore(MemoryStore):
    """Books, and is cancelled before it can say so."""

    async def reserve(self, hold_id: str, bounds: Bounds, amounts: Amounts, read_counted: Callable[[], Amounts]) -> Granted | Refused:
        await super().reserve(hold_id, bounds, amounts, read_counted)
        raise asyncio.CancelledError

"""What happens when the shared store is away: refuse new turns, or decide by this router's share of the limits. Never a wait.

Turns that run go on either way. What they used is settled in the shared store when it is back; a turn that was granted here meanwhile is
charged there then, so no token is forgotten, only let through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from router.errors import Code, RouterError
from router.quota.limits import CALLERS, Amounts, Bounds
from router.quota.memory import MemoryStore
from router.quota.store import Granted, Refused, Store, StoreAway


def quota_unavailable() -> RouterError:
    """Limits cannot be checked now, and the policy is to refuse then."""
    return RouterError(Code.UNAVAILABLE, "QUOTA_UNAVAILABLE", "limits cannot be checked now", retry_after_s=1.0)


class FailClosed:
    """Implements Store: without the shared store nothing new starts."""

    def __init__(self, shared: Store) -> None:
        self._shared = shared

    async def reserve(self, hold_id: str, bounds: Bounds, amounts: Amounts, read_counted: Callable[[], Amounts]) -> Granted | Refused:
        """See Store. Raises RouterError QUOTA_UNAVAILABLE."""
        try:
            return await self._shared.reserve(hold_id, bounds, amounts, read_counted)
        except StoreAway as away:
            if away.maybe_done:
                await self._shared.settle(hold_id, bounds, Amounts())
            raise quota_unavailable() from None

    async def extend(self, hold_id: str, bounds: Bounds, more: Amounts) -> Granted | Refused:
        """See Store."""
        return await self._shared.extend(hold_id, bounds, more)

    async def settle(self, hold_id: str, bounds: Bounds, actual: Amounts) -> None:
        """See Store."""
        await self._shared.settle(hold_id, bounds, actual)


class FailOpen:
    """Implements Store: without the shared store this router grants its share, the limits divided by the number of routers."""

    def __init__(self, shared: Store, local: MemoryStore, *, routers: int) -> None:
        self._shared = shared
        self._local = local
        self._routers = routers
        self._held_here: set[str] = set()

    async def reserve(self, hold_id: str, bounds: Bounds, amounts: Amounts, read_counted: Callable[[], Amounts]) -> Granted | Refused:
        """See Store. Never raises."""
        try:
            return await self._shared.reserve(hold_id, bounds, amounts, read_counted)
        except StoreAway as away:
            decision = await self._local.reserve(hold_id, _share(bounds, self._routers), amounts, read_counted)
            if isinstance(decision, Granted):
                self._held_here.add(hold_id)
            elif away.maybe_done:
                await self._shared.settle(hold_id, bounds, Amounts())
            return decision

    async def extend(self, hold_id: str, bounds: Bounds, more: Amounts) -> Granted | Refused:
        """See Store. A turn that was granted here stays here."""
        if hold_id in self._held_here:
            return await self._local.extend(hold_id, _share(bounds, self._routers), more)
        return await self._shared.extend(hold_id, bounds, more)

    async def settle(self, hold_id: str, bounds: Bounds, actual: Amounts) -> None:
        """See Store."""
        if hold_id in self._held_here:
            self._held_here.discard(hold_id)
            await self._local.settle(hold_id, _share(bounds, self._routers), actual)
        await self._shared.settle(hold_id, bounds, actual)


@lru_cache(maxsize=CALLERS)
def _share(bounds: Bounds, routers: int) -> Bounds:
    """The part of one router. A zero stays one; any other limit leaves room for at least one."""
    return Bounds(replace(bound, limit=-(-bound.limit // routers)) for bound in bounds)

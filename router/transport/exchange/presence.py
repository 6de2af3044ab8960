"""Which routers are there: each renews a lease in Redis, and looks after the leases of those that it depends on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from redis.asyncio import Redis

BEATS = 4
"""Times that a lease is renewed before it ends."""


class Presence:
    """This router's lease and what is known of the others'."""

    def __init__(self, redis: Redis, prefix: str, router: str, lease_s: float) -> None:
        self._redis = redis
        self._prefix = f"{prefix}router:"
        self._router = router
        self._lease_ms = int(lease_s * 1000)
        self._watched: defaultdict[str, dict[object, Callable[[], None]]] = defaultdict(dict)
        self._missed: defaultdict[str, int] = defaultdict(int)

    def inbox(self, router: str) -> str:
        """Where a router gets messages."""
        return f"{self._prefix}{router}:inbox"

    def watch(self, router: str, key: object, lost: Callable[[], None]) -> None:
        """Calls `lost` when a router's lease has been missing for as long as a lease lasts."""
        self._watched[router][key] = lost

    def unwatch(self, router: str, key: object) -> None:
        """The router does not matter any more, as far as this key goes."""
        self._watched[router].pop(key, None)

    async def is_there(self, router: str) -> bool:
        """Whether a router holds its lease. Raises RedisError."""
        return bool(await self._redis.exists(self._lease(router)))

    async def beat(self) -> None:
        """Renews the lease and looks at the others; to be called BEATS times in its time. Raises RedisError."""
        for router in [router for router, watchers in self._watched.items() if not watchers]:
            del self._watched[router]
            self._missed.pop(router, None)
        watched = list(self._watched)
        async with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.set(self._lease(self._router), 1, px=self._lease_ms)
            pipeline.pexpire(self.inbox(self._router), 100 * self._lease_ms)
            for router in watched:
                pipeline.exists(self._lease(router))
            _, _, *there = await pipeline.execute()
        for router, is_there in zip(watched, there, strict=True):
            self._missed[router] = 0 if is_there else self._missed[router] + 1
            if self._missed[router] >= BEATS:
                for lost in self._watched.pop(router).values():
                    lost()

    async def leave(self) -> None:
        """Gives the lease up. Raises RedisError."""
        await self._redis.delete(self._lease(self._router), self.inbox(self._router))

    def _lease(self, router: str) -> str:
        return f"{self._prefix}{router}:lease"

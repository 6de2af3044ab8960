"""The book of load in Redis, for several routers: one script chooses and books, by the server's clock.

Each router has what it booked in a hash of its own, under a lease that it renews; a worker's load is the sum over all hashes. So when a
router dies its bookings vanish with its lease, and nobody has to find out which they were.

What this router has booked it knows itself, too. Choosing waits for Redis, at most for the deadline; without it this router chooses by its
own bookings alone, which is how a single router does. Loads that go are told a moment later, together. When Redis may have missed something
(it was away, or this router was, for longer than its lease) everything is written anew into a hash with a new name, so that what was under
way to the old one does no harm.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from router.redis.scripts import RedisAway, Scripts
from router.routing.book import Booking, Sums
from router.routing.offer import Booked, Offer, pick

_LUA = Path(__file__).parent / "lua"
_TOGETHER_S = 0.005
_AWAY_S = 0.25


class RedisBook:
    """Implements Book for the workers of one pool. An async context manager: entering raises StoreRefused when Redis cannot be used."""

    def __init__(
        self,
        url: str,
        pool: str,
        *,
        prefix: str = "tidegate:",
        deadline_s: float = 0.05,
        lease_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`deadline_s` bounds each choice; `lease_s` is how long a dead router's bookings count."""
        self._scripts = Scripts(url, _LUA, deadline_s=deadline_s, clock=clock)
        self._routers = f"{prefix}{{book:{pool}}}:routers"
        self._name = f"{prefix}{{book:{pool}}}:{uuid.uuid4().hex}:"
        self._lease_ms = int(lease_s * 1000)
        self._own = Sums()
        self._changes = Sums()
        self._version = 0
        self._stale = False
        self._wake = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> RedisBook:
        try:
            await self._scripts.load()
            await self._renew()
        except BaseException:
            await self._scripts.close()
            raise
        self._keeper = asyncio.create_task(self._keep(), name="book keeper")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._keeper
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        with suppress(RedisAway):
            await self._scripts.run("leave", self._keys, ())
        await self._scripts.close()

    @property
    def booked(self) -> Mapping[str, Booked]:
        """See Book."""
        return self._own

    async def place(self, offers: Sequence[Offer]) -> Booking:
        """See Book."""
        return Booking(await self._choose(offers), self._change)

    async def _choose(self, offers: Sequence[Offer]) -> Offer:
        version = self._version
        try:
            place, known = await self._scripts.run("place", self._keys, (self._lease_ms, json.dumps(offers)))
        except RedisAway:
            self._doubt()
            return pick(offers, self._own)
        except asyncio.CancelledError:  # it may have been booked
            self._doubt()
            raise
        if not known or version != self._version:
            self._doubt()
        return offers[place - 1]

    def _change(self, worker: str, load: Booked, sign: int) -> None:
        self._own.change(worker, load, sign)
        if sign < 0:  # the script that chose has added it
            self._changes.change(worker, load, sign)
            self._wake.set()

    def _doubt(self) -> None:
        self._stale = True
        self._wake.set()

    async def _keep(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._lease_ms / 3000):
                    await self._wake.wait()
            await asyncio.sleep(_TOGETHER_S)
            self._wake.clear()
            await (self._renew() if self._stale else self._tell())

    async def _tell(self) -> None:
        """Sends what changed, if anything; the lease is renewed either way."""
        changes, self._changes = self._changes, Sums()
        await self._send("change", json.dumps(changes))

    async def _renew(self) -> None:
        """Writes everything anew."""
        self._version += 1
        self._stale = False
        self._changes.clear()
        await self._send("renew", json.dumps(self._own), self._name)

    async def _send(self, script: str, *args: str) -> None:
        try:
            (known,) = await self._scripts.run(script, self._keys, (self._lease_ms, *args))
        except RedisAway:
            self._doubt()
            await asyncio.sleep(_AWAY_S)
        else:
            if not known:
                self._doubt()

    @property
    def _keys(self) -> tuple[str, str]:
        return self._routers, f"{self._name}{self._version}"

"""Keys as this router knows them: remembered for speed, and for a while when the database is away.

What is remembered follows a change within a second, on every router: each asks the database every 0.4 s which keys changed, by an
index and so at the same small cost however many there are.

A poll looks back some seconds further than the last one that succeeded, so that a key read just before its change and remembered just
after is put right by the next. While polls fail, remembered keys go on being served until `grace_s` is over; unknown ones cannot be
checked and are told so, without waiting for the database each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Protocol

from router.auth.recent import Recent
from router.auth.renewals import Renewals
from router.errors import RouterError, identity_unknown
from router.store.follower import Follower
from router.store.identity import Changes
from router.store.rows import KeyDigests, KeyRow

_LOOK_BACK = timedelta(seconds=15)  # more than a look-up may take
_NEVER = datetime.max.replace(tzinfo=UTC)
_LOOKUPS_AT_ONCE = 4


class KeySource(Protocol):
    """Where keys are looked up; router.store.identity in production. Raises RouterError when it is away."""

    async def find_key(self, prefix: str) -> KeyRow | None:
        """The key with a prefix."""
        ...

    async def read_changes(self, since: datetime) -> Changes:
        """What changed at or after a time."""
        ...

    async def renew_key(self, prefix: str, digests: KeyDigests) -> None:
        """Stores a key's digests."""
        ...


class Directory:
    """Finds keys by prefix, and knows which tenants are disabled."""

    def __init__(
        self, source: KeySource, *, clock: Callable[[], float], poll_s: float = 0.4, grace_s: float = 300.0, size: int = 10_000
    ) -> None:
        self._source = source
        self._clock = clock
        self._grace_s = grace_s
        self._known: Recent[KeyRow] = Recent(size)
        self._unknown: Recent[bool] = Recent(size)  # apart from the known, so that guesses cannot push those out
        self._disabled: frozenset[str] = frozenset()
        self._polled_at: float | None = None
        self._database_time = _NEVER  # the first poll has nothing to forget, and must not read every key there is
        self._follower = Follower(self._read_changes, poll_s, f"keys cannot be checked; those known are served for {grace_s:.0f} s")
        self._renewals = Renewals(source.renew_key, poll_s)
        self._lookups = asyncio.Semaphore(_LOOKUPS_AT_ONCE)

    def is_disabled(self, tenant: str) -> bool:
        """Whether a tenant is shut out. Raises RouterError when that has not been known for too long."""
        self._check_grace()
        return tenant in self._disabled

    async def find_key(self, prefix: str) -> KeyRow | None:
        """The key with a prefix. Raises RouterError when it is not remembered and the database is away, or away for too long."""
        self._check_grace()
        known = self._known.get(prefix)
        if known is not None:
            return known
        if self._unknown.get(prefix):
            return None
        return await self._look_up(prefix)

    async def _look_up(self, prefix: str) -> KeyRow | None:
        if self._follower.is_stale:
            raise identity_unknown()
        async with self._lookups:  # guesses wait for each other, and leave the database's other connections to the rest
            key = self._known.get(prefix) or await self._ask(prefix)
        if key is None:
            self._unknown.put(prefix, True)
        else:
            self._known.put(prefix, key)
        return key

    async def _ask(self, prefix: str) -> KeyRow | None:
        try:
            return await self._source.find_key(prefix)
        except RouterError:
            raise identity_unknown() from None

    @property
    def is_known(self) -> bool:
        """Whether it was heard of the database within the grace; nobody can be checked otherwise."""
        return self._polled_at is not None and self._clock() - self._polled_at <= self._grace_s

    def _check_grace(self) -> None:
        if not self.is_known:
            raise identity_unknown()

    def renew(self, prefix: str, digests: KeyDigests) -> None:
        """Has a key's digests stored anew, soon; what is remembered of the key follows with the next poll."""
        self._renewals.note(prefix, digests)

    async def poll(self) -> None:
        """Asks once what changed. A database that is away is noted, not raised."""
        await self._follower.look()

    async def _read_changes(self) -> None:
        self._apply(await self._source.read_changes(self._database_time - _LOOK_BACK))

    def _apply(self, changes: Changes) -> None:
        for key in changes.keys:
            self._unknown.drop(key.prefix)
            if self._known.get(key.prefix):
                self._known.put(key.prefix, key)
        self._disabled = frozenset(changes.disabled_tenants)
        self._database_time = changes.now
        self._polled_at = self._clock()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Directory]:
        """Polls once, and then again and again. Does not fail when the database is away."""
        await self.poll()
        async with self._follower.running(), self._renewals.running():
            yield self

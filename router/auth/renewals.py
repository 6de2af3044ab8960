"""Storing keys' digests anew as keys are used, for only then is a key's text at hand.

Callers do not wait for it, and it may be lost: the next use of the key brings it again. Only a few are written at once, because every
router reads the keys that changed with each of its polls, for some seconds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import islice

from router.store.follower import Follower
from router.store.rows import KeyDigests

_AT_ONCE = 16
_MOST = 10_000


class Renewals:
    """Keys that wait for being written, by prefix."""

    def __init__(self, write: Callable[[str, KeyDigests], Awaitable[None]], every_s: float) -> None:
        self._write_key = write
        self._waiting: dict[str, KeyDigests] = {}
        self._follower = Follower(self.write, every_s, "keys cannot be stored under the pepper of now; they hold by that of before")

    def note(self, prefix: str, digests: KeyDigests) -> None:
        """Remembers a key, once; or not, when too many wait."""
        if len(self._waiting) < _MOST:
            self._waiting[prefix] = digests

    async def write(self) -> None:
        """Writes a few of those that wait. Raises RouterError when the database is away; they wait on then."""
        for prefix in list(islice(self._waiting, _AT_ONCE)):
            await self._write_key(prefix, self._waiting[prefix])
            del self._waiting[prefix]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Writes for as long as this is open."""
        async with self._follower.running():
            yield

"""Keeping in step with the database, by a short look a few times a second.

Looking rather than LISTEN, because a look that fails is known to have failed, whereas a lost notification is not, and because poolers in
front of PostgreSQL do not pass notifications on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from router.errors import RouterError, describe_fault

log = logging.getLogger("tidegate.store")


class Follower:
    """Looks again and again. A database that is away is noted, and logged once for each absence."""

    def __init__(self, look: Callable[[], Awaitable[None]], every_s: float, lost: str) -> None:
        """`lost` is what the log says when looking begins to fail."""
        self._look = look
        self._every_s = every_s
        self._lost = lost
        self.is_stale = False
        """Whether the last look failed."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Looks for as long as this is open; the first time after a while."""
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await self.look()

    async def look(self) -> None:
        """Looks once."""
        try:
            await self._look()
        except Exception as error:
            if not self.is_stale:
                log.warning("%s: %s", self._lost, error.reason if isinstance(error, RouterError) else describe_fault(error))
            self.is_stale = True
        else:
            self.is_stale = False

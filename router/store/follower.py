"""Following what changes in the database, by asking a few times a second.

Asking rather than LISTEN, because a question that fails is known to have failed, whereas a lost notification is not, and because poolers in
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
    """Asks again and again. A database that is away is noted, and logged once for each absence; what was known goes on being used."""

    def __init__(self, ask: Callable[[], Awaitable[None]], every_s: float, lost: str) -> None:
        """`lost` is what the log says when asking begins to fail."""
        self._ask = ask
        self._every_s = every_s
        self._lost = lost
        self.is_stale = False
        """Whether the last question failed."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Asks for as long as this is open; the first time after a while."""
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await self.ask()

    async def ask(self) -> None:
        """Asks once."""
        try:
            await self._ask()
        except Exception as error:
            if not self.is_stale:
                log.warning("%s: %s", self._lost, error.reason if isinstance(error, RouterError) else describe_fault(error))
            self.is_stale = True
        else:
            self.is_stale = False

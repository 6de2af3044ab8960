"""Which routers use a database: those that share their counters, or one that counts alone.

Two routers that each count in memory would let twice the limits through, and nobody would notice. So a router that counts alone holds a
lock of the database, and one that shares holds the same lock shared. The lock is of the session: it ends with the router.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg

from router.errors import StartFailed
from router.store.database import Database

_LOCK = 0x71DE6A7F


@asynccontextmanager
async def presence(database: Database, *, shares: bool) -> AsyncIterator[None]:
    """Keeps the lock, on a connection of its own. Raises StartFailed, StoreAway."""
    function = "pg_try_advisory_lock_shared" if shares else "pg_try_advisory_lock"
    async with database.connect() as connection:
        cursor = await connection.execute(f"SELECT {function}(%s) AS held".encode(), [_LOCK])
        row = await cursor.fetchone()
        if row is None or not row["held"]:
            raise StartFailed("another router uses this database: give this one its own (store), or all of them one Redis (quota.redis)")
        try:
            yield
        finally:
            with suppress(psycopg.Error):  # a connection that is gone holds no lock
                await connection.execute("SELECT pg_advisory_unlock_all()")

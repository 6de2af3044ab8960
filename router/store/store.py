"""The database as a router needs it: started if it is ours, moved to the newest schema, and claimed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from router.config import ConfigInvalid
from router.config import Store as StoreConfig
from router.errors import StartFailed
from router.store.database import Database, StoreAway
from router.store.embedded import embedded_postgres
from router.store.migrate import migrate
from router.store.peppers import claim_peppers
from router.store.presence import presence


class Store:
    """PostgreSQL at a DSN, or an embedded one in the router's folder."""

    def __init__(self, config: StoreConfig) -> None:
        """Raises ConfigInvalid."""
        self._dsn = config.dsn.get_secret_value()
        try:
            conninfo_to_dict(self._dsn)
        except ProgrammingError:  # here, for the pool would log the DSN, with its password
            raise ConfigInvalid("store.dsn: must be a URL such as postgresql://user@host/db, or libpq's `host=... dbname=...`") from None
        self._folder: Path = config.folder / "postgres"
        self.database = Database(lambda: self._dsn)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Database]:
        """The database at the newest schema. Raises StartFailed."""
        async with AsyncExitStack() as stack:
            if not self._dsn:
                self._dsn = await stack.enter_async_context(embedded_postgres(self._folder))
            await stack.enter_async_context(self.database.running())
            try:
                await migrate(self.database)
            except StoreAway:
                raise StartFailed("store.dsn: the database cannot be reached") from None
            yield self.database

    @asynccontextmanager
    async def running(self, peppers: Collection[str], *, shares: bool) -> AsyncIterator[Database]:
        """The same, claimed for a router with these peppers, by name, that shares its counters or does not. Raises StartFailed."""
        async with self.open() as database, presence(database, shares=shares):
            await claim_peppers(database, peppers)
            yield database

"""Connections to PostgreSQL. psycopg's errors about the connection leave here as StoreAway, so that "away" differs from "wrong"."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, LiteralString, Protocol, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg.rows import class_row, dict_row
from psycopg_pool import AsyncConnectionPool

from router.errors import Code, RouterError

Row = TypeVar("Row")
Values = Sequence[Any] | Mapping[str, Any]
Connection = psycopg.AsyncConnection[dict[str, Any]]

_CHECK_S = 1.0
_SESSION = {
    "autocommit": True,
    "row_factory": dict_row,
    "connect_timeout": 2,
    "application_name": "tidegate",
    "options": "-c statement_timeout=10s -c timezone=UTC",
}


class StoreAway(RouterError):
    """The database cannot be reached, or does not answer in time."""

    def __init__(self) -> None:
        super().__init__(Code.UNAVAILABLE, "STORE_AWAY", "the database is away", retry_after_s=1.0)


class Queries(Protocol):
    """What runs statements: the database, each on its own, or a transaction, all or none. Raises StoreAway."""

    async def fetch(self, kind: type[Row], statement: LiteralString, values: Values = ()) -> list[Row]:
        """All rows, each as `kind(**columns)`."""
        ...

    async def execute(self, statement: LiteralString, values: Values = ()) -> int:
        """Runs one statement; the number of rows it touched."""
        ...


class Transaction:
    """Queries on one connection, which take effect together: a change and its line in the audit log."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def fetch(self, kind: type[Row], statement: LiteralString, values: Values = ()) -> list[Row]:
        """All rows, each as `kind(**columns)`."""
        async with self._connection.cursor(row_factory=class_row(kind)) as cursor:
            await cursor.execute(statement, values)
            return await cursor.fetchall()

    async def execute(self, statement: LiteralString, values: Values = ()) -> int:
        """Runs one statement; the number of rows it touched."""
        return (await self._connection.execute(statement, values)).rowcount


class Database:
    """A pool of connections to one database. Every method raises StoreAway when the database is away, within about `timeout_s`."""

    def __init__(self, dsn: str | Callable[[], str], *, connections: int = 8, timeout_s: float = 2.0) -> None:
        self._checked: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            dsn,
            connection_class=psycopg.AsyncConnection[dict[str, Any]],
            kwargs=_SESSION,
            min_size=1,
            max_size=connections,
            timeout=timeout_s,
            reconnect_timeout=5.0,
            check=self._check,
            open=False,
            name="store",
        )

    async def _check(self, connection: Connection) -> None:
        """Finds the dead connections that a restarted database leaves behind; asks busy ones once a second, and all after a failure."""
        now = time.monotonic()
        if now - self._checked.get(connection, 0.0) > _CHECK_S:
            await AsyncConnectionPool.check_connection(connection)
            self._checked[connection] = now

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Database]:
        """Keeps the pool open. Does not wait for the database: a router starts while it is away."""
        await self._pool.open()
        try:
            yield self
        finally:
            await self._pool.close(timeout=1.0)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """A connection in autocommit mode."""
        begun = _count_cancellations()
        try:
            async with self._pool.connection() as connection:
                yield connection
        except (psycopg.OperationalError, psycopg.InterfaceError):
            self._checked.clear()
            raise StoreAway from None
        finally:
            # Before Python 3.12 `asyncio.wait_for` may lose a cancellation, and psycopg waits with it: seen when connections broke.
            if _count_cancellations() > begun:
                raise asyncio.CancelledError

    @asynccontextmanager
    async def transact(self) -> AsyncIterator[Transaction]:
        """Statements that take effect together when the block ends well."""
        async with self.connect() as connection, connection.transaction():
            yield Transaction(connection)

    async def fetch(self, kind: type[Row], statement: LiteralString, values: Values = ()) -> list[Row]:
        """All rows, each as `kind(**columns)`."""
        async with self.connect() as connection:
            return await Transaction(connection).fetch(kind, statement, values)

    async def execute(self, statement: LiteralString, values: Values = ()) -> int:
        """Runs one statement; the number of rows it touched."""
        async with self.connect() as connection:
            return await Transaction(connection).execute(statement, values)


def _count_cancellations() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()

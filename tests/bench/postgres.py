"""A real PostgreSQL for tests: one embedded server for the whole session, an empty database for each test that asks."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo

from router.store.database import Database
from router.store.embedded import start_keeper
from router.store.migrate import migrate


@cache
def start_server() -> str:
    """The DSN of the session's server, which is stopped at its end."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-pg-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    keeper = start_keeper(folder / "data")
    atexit.register(keeper.communicate)
    assert keeper.stdout is not None
    dsn = keeper.stdout.readline().strip()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")  # no test cuts the power, and making databases is ten times faster
        connection.execute("SELECT pg_reload_conf()")
    return dsn


def dsn_of(name: str) -> str:
    """The DSN of another database on the session's server."""
    return make_conninfo(start_server(), dbname=name)


async def administer(*statements: str) -> None:
    """Runs statements on the server itself, outside any test's database."""
    async with await psycopg.AsyncConnection.connect(start_server(), autocommit=True) as connection:
        for statement in statements:
            await connection.execute(statement.encode())


@asynccontextmanager
async def empty_database() -> AsyncIterator[str]:
    """The DSN of a database without tables."""
    async with _database("") as dsn:
        yield dsn


@asynccontextmanager
async def _database(options: str) -> AsyncIterator[str]:
    """The DSN of a new database, which goes when this is left; `options` are those of CREATE DATABASE."""
    name = f"t{uuid4().hex}"
    await administer(f"CREATE DATABASE {name} {options}")
    try:
        yield dsn_of(name)
    finally:
        await administer(f"DROP DATABASE {name} WITH (FORCE)")


_templates: list[str] = []


@asynccontextmanager
async def migrated_database() -> AsyncIterator[str]:
    """The DSN of a database with all tables and no rows. It is a copy of one: that is faster than migrating each."""
    if not _templates:
        template = f"t{uuid4().hex}"
        await administer(f"CREATE DATABASE {template}")
        async with Database(dsn_of(template)).running() as database:
            await migrate(database)
        _templates.append(template)
    async with _database(f"TEMPLATE {_templates[0]} STRATEGY FILE_COPY") as dsn:
        yield dsn


@asynccontextmanager
async def fresh_database() -> AsyncIterator[tuple[Database, str]]:
    """A database with all tables and no rows, and its DSN."""
    async with migrated_database() as dsn, Database(dsn, timeout_s=0.5).running() as database:
        yield database, dsn


@asynccontextmanager
async def outage(dsn: str) -> AsyncIterator[None]:
    """Takes one database away, and brings it back: connections break and new ones are refused."""
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    kick = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    await administer(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false", kick)
    try:
        yield
    finally:
        await administer(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

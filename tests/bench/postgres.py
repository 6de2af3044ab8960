"""A real PostgreSQL for tests: one embedded server for the whole session, a database of its own for each test that asks."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import LiteralString
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
    name = await _create()
    try:
        yield dsn_of(name)
    finally:
        await _drop(name)


async def _create() -> str:
    name = f"t{uuid4().hex}"
    await administer(f"CREATE DATABASE {name}")
    return name


async def _drop(name: str) -> None:
    await administer(f"DROP DATABASE {name} WITH (FORCE)")


_free: list[tuple[str, int]] = []
"""Databases to be used again, with their shape when they were made."""


@asynccontextmanager
async def migrated_database() -> AsyncIterator[str]:
    """The DSN of a database with all tables and only the rows that migrations make. It is used again, for emptying one costs far less than
    making it; one whose tables a test has changed is dropped."""
    name, shape = _free.pop() if _free else await _make()
    try:
        yield dsn_of(name)
    finally:
        if await _read(name, _LEAVE, _EMPTY, _SHAPE) == shape:
            _free.append((name, shape))
        else:
            await _drop(name)


async def _make() -> tuple[str, int]:
    name = await _create()
    async with Database(dsn_of(name)).running() as database:
        await migrate(database)
    return name, await _read(name, _KEEP, _SHAPE)


async def _read(name: str, *statements: LiteralString) -> int:
    """Runs statements in one database; the number that the last of them gives."""
    async with await psycopg.AsyncConnection.connect(dsn_of(name), autocommit=True) as connection:
        for statement in statements:
            cursor = await connection.execute(statement)
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


_LEAVE = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
_SHAPE = "SELECT (SELECT count(*) FROM pg_attribute) + (SELECT count(*) FROM pg_constraint) + (SELECT count(*) FROM pg_trigger)"
_KEEP = """
CREATE SCHEMA made;
DO $$ DECLARE it text; filled bool; BEGIN
    FOR it IN SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public' LOOP
        EXECUTE 'SELECT EXISTS (TABLE ' || it || ')' INTO filled;
        IF filled THEN EXECUTE 'CREATE TABLE made.' || it || ' AS TABLE ' || it; END IF;
    END LOOP;
END $$
"""
_EMPTY = """
DO $$ DECLARE it text; BEGIN
    SET LOCAL session_replication_role = replica;  -- no triggers: some tables are append-only
    FOR it IN SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public' LOOP EXECUTE 'DELETE FROM ' || it; END LOOP;
    FOR it IN SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'made' LOOP
        EXECUTE 'INSERT INTO ' || it || ' TABLE made.' || it;
    END LOOP;
    PERFORM setval(quote_ident(sequencename)::regclass, start_value, false) FROM pg_sequences WHERE schemaname = 'public';
END $$
"""


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

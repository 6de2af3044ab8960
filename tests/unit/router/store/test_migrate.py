"""The schema moves forward once, whoever starts first and from wherever it was."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from router.store.database import Database, StoreAway
from router.store.identity import IdentityStore
from router.store.migrate import Migration, SchemaConflict, migrate, read_migrations
from tests.bench.postgres import empty_database


async def test_an_empty_database_gets_every_migration() -> None:
    """And a second start finds nothing to do."""
    async with empty_database() as dsn, Database(dsn).running() as database:
        assert await migrate(database) == len(read_migrations())
        assert await migrate(database) == 0


async def test_the_previous_version_keeps_its_rows() -> None:
    """A database left by the last release moves on with what it holds."""
    async with empty_database() as dsn, Database(dsn).running() as database:
        await migrate(database, read_migrations()[:-1])
        await database.execute("INSERT INTO tenants (id, name) VALUES ('acme', 'Acme')")
        await database.execute("INSERT INTO users (tenant, id, name) VALUES ('acme', 'ann', 'Ann')")
        add_key = """INSERT INTO keys (prefix, digest, tenant, "user", name, roles) VALUES (%s, %s, 'acme', 'ann', '', '{caller}')"""
        await database.execute(add_key, ["before", b"d" * 32])
        assert await migrate(database) == 1
        await database.execute(add_key, ["after", b"e" * 32])  # by a router of the last release that is still running
        keys = await IdentityStore(database).list_keys("acme")
        assert [(key.prefix, key.digest, key.pepper, key.next_digest) for key in keys] == [
            ("before", b"d" * 32, None, None),
            ("after", b"e" * 32, None, None),
        ]


async def test_routers_that_start_at_once_migrate_once() -> None:
    """One applies all, the others wait for it and apply none."""
    async with empty_database() as dsn, Database(dsn).running() as one, Database(dsn).running() as two:
        applied = await asyncio.gather(*(migrate(database) for database in (one, two, one, two)))
    assert sorted(applied) == [0, 0, 0, len(read_migrations())]


async def test_a_migration_that_fails_leaves_the_old_schema() -> None:
    """What the same start had applied before it is taken back too."""
    broken = Migration(2, "broken", b"CREATE TABLE half (id int); SELECT 1/0")
    async with empty_database() as dsn, Database(dsn).running() as database:
        with pytest.raises(Exception, match="division by zero"):
            await migrate(database, [read_migrations()[0], broken])
        assert await migrate(database) == len(read_migrations())


async def test_an_edited_migration_is_refused() -> None:
    """A database whose history is not ours is not touched."""
    async with empty_database() as dsn, Database(dsn).running() as database:
        first, *rest = read_migrations()
        await migrate(database, [replace(first, sql=first.sql + b"-- edited\n")])
        with pytest.raises(SchemaConflict, match="migration 1"):
            await migrate(database, [first, *rest])


async def test_a_newer_database_is_left_alone() -> None:
    """An older router runs on the schema of a newer one while an upgrade rolls."""
    newer = [*read_migrations(), Migration(len(read_migrations()) + 1, "newer", b"CREATE TABLE newer (id int)")]
    async with empty_database() as dsn, Database(dsn).running() as database:
        await migrate(database, newer)
        assert await migrate(database) == 0


def test_a_gap_in_the_numbers_is_refused(tmp_path: Path) -> None:
    """A forgotten file must not pass as applied."""
    (tmp_path / "0001_a.sql").write_text("")
    (tmp_path / "0003_c.sql").write_text("")
    with pytest.raises(ValueError, match="numbered 1 to 2"):
        read_migrations(tmp_path)


async def test_a_database_that_is_away_is_told_as_such() -> None:
    """Within the timeout, as an error of ours."""
    async with Database("postgresql://nobody@/none?host=/nowhere", timeout_s=0.1).running() as database:
        with pytest.raises(StoreAway):
            await migrate(database)

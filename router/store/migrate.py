"""Moves a database forward to the schema this router knows.

Migrations are the numbered SQL files beside this one, each applied once, in order, all in one transaction: PostgreSQL's DDL is
transactional, so a router killed half-way leaves the old schema. An advisory lock lets one router work while the others wait. A file that
was applied is never edited; its digest is kept and compared. A database that is ahead of the router is left alone: an older router can
still run on the newer schema while an upgrade rolls, as migrations only add.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from router.errors import StartFailed
from router.store.database import Connection, Database

_FOLDER = Path(__file__).parent / "migrations"
_LOCK = 0x71DE6A7E

log = logging.getLogger("tidegate.store")


class SchemaConflict(StartFailed):
    """The database's history is not a beginning of this router's: it belongs to something else, or an applied migration was edited."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema; numbers begin at 1 and have no gaps."""

    number: int
    name: str
    sql: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.sql).hexdigest()


def read_migrations(folder: Path = _FOLDER) -> tuple[Migration, ...]:
    """All migrations of a folder, `0001_name.sql` and so on. Raises ValueError on a gap."""
    paths = sorted(folder.glob("*.sql"))
    migrations = tuple(Migration(int(path.name[:4]), path.stem[5:], path.read_bytes()) for path in paths)
    if [it.number for it in migrations] != list(range(1, len(migrations) + 1)):
        raise ValueError(f"{folder}: migrations are not numbered 1 to {len(migrations)}")
    return migrations


async def migrate(database: Database, migrations: Sequence[Migration] | None = None) -> int:
    """Applies what is missing; the number of migrations applied. Raises StoreAway and SchemaConflict."""
    wanted = read_migrations() if migrations is None else migrations
    async with database.connect() as connection, connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        applied = await _read_history(connection)
        missing = _find_missing(wanted, applied)
        for migration in missing:
            await _apply(connection, migration)
    return len(missing)


async def _read_history(connection: Connection) -> list[str]:
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_history"
        " (number int PRIMARY KEY, name text NOT NULL, digest text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
    )
    rows = await (await connection.execute("SELECT digest FROM schema_history ORDER BY number")).fetchall()
    return [row["digest"] for row in rows]


def _find_missing(wanted: Sequence[Migration], applied: Sequence[str]) -> Sequence[Migration]:
    for migration, digest in zip(wanted, applied, strict=False):
        if migration.digest != digest:
            raise SchemaConflict(f"migration {migration.number} of the database is not this router's; name another database")
    return wanted[len(applied) :]


async def _apply(connection: Connection, migration: Migration) -> None:
    await connection.execute(migration.sql)
    await connection.execute(
        "INSERT INTO schema_history (number, name, digest) VALUES (%s, %s, %s)", [migration.number, migration.name, migration.digest]
    )
    log.info("the database is at migration %d, %s", migration.number, migration.name)

"""Which peppers the keys of a database are hashed with, so that a router with another one does not start and refuse every key.

The database holds names of peppers, HMACs of a fixed text under them. A router starts when it knows one of them, or when there are none,
as in a database that was made before they were kept. From then on the peppers that it knows count: with the one of before, both do, and
routers with either start; with one alone the others are forgotten, which ends a change.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from router.errors import StartFailed
from router.store.database import Database

_OTHER = (
    "the keys in this database are hashed with another pepper than this router's: set TIDEGATE_KEY_PEPPER to what its other routers have, "
    "or what is in the file `pepper` of their store.folder; to change the pepper, set that as TIDEGATE_KEY_PEPPER_PREVIOUS"
)


@dataclass(frozen=True, slots=True)
class _Pepper:
    name: str


async def claim_peppers(database: Database, names: Collection[str]) -> None:
    """Has a router with these peppers use the database. Raises StartFailed when its keys have others, StoreAway."""
    async with database.transact() as transaction:
        await transaction.execute("LOCK TABLE peppers IN EXCLUSIVE MODE")  # of two first routers the second sees the first one's
        known = {row.name for row in await transaction.fetch(_Pepper, "SELECT name FROM peppers")}
        if known and known.isdisjoint(names):
            raise StartFailed(_OTHER)
        if len(names) == 1:
            await transaction.execute("DELETE FROM peppers WHERE name <> ALL(%s)", [list(names)])
        await transaction.execute("INSERT INTO peppers SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING", [list(names)])

"""Queries on drained workers. Every change raises the version of the terms of service, with which routers read them."""

from __future__ import annotations

from dataclasses import dataclass

from router.store.database import Queries


@dataclass(frozen=True, slots=True)
class _Drain:
    address: str


class DrainStore:
    """Addresses of workers that get no new turns. Every method raises StoreAway."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def put(self, address: str) -> None:
        """Drains a worker, which may be drained already."""
        await self._queries.execute("INSERT INTO drained_workers (address) VALUES (%s) ON CONFLICT DO NOTHING", [address])

    async def delete(self, address: str) -> bool:
        """Resumes a worker. Whether it was drained."""
        return await self._queries.execute("DELETE FROM drained_workers WHERE address = %s", [address]) > 0

    async def list_all(self) -> frozenset[str]:
        """All of them."""
        return frozenset(row.address for row in await self._queries.fetch(_Drain, "SELECT address FROM drained_workers"))

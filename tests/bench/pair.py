"""Routers that share all that routers share: the workers, a database, a Redis, and the pepper of keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench.postgres import migrated_database
from tests.bench.process import RouterProcess, run_process
from tests.bench.router import Router, run_router, values_of
from tests.bench.worker import Worker
from tests.unit.router.quota.redis_server import RedisServer, run_redis


@dataclass(frozen=True, slots=True)
class Site:
    """Where routers run."""

    redis: RedisServer
    folder: Path
    model: Path
    worker: Worker
    dsn: str
    sections: dict[str, Any]

    def router(self, name: str) -> AbstractAsyncContextManager[Router]:
        """One more router."""
        return run_router(self.model, self.worker.address, store=self.store(name), **self.sections)

    def process(self, name: str, **secrets: str) -> AbstractAsyncContextManager[RouterProcess]:
        """One more router, in a process of its own with these variables."""
        return run_process(values_of(self.model, self.worker.address, store=self.store(name), **self.sections), **secrets)

    def store(self, name: str) -> dict[str, str]:
        """A router's `[store]` section, with the common pepper in its folder."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "pepper").write_bytes(b"p" * 48)
        return {"folder": str(folder), "dsn": self.dsn}


@asynccontextmanager
async def run_site(model: Path, worker: Worker, *, resume: dict[str, Any] | None = None, **quota: Any) -> AsyncIterator[Site]:
    """Runs the worker, the database and Redis."""
    with TemporaryDirectory() as folder, run_redis() as redis:
        async with worker.running(), migrated_database() as dsn:
            sections = {"quota": {"redis": redis.url, "routers": 2, **quota}, "resume": resume or {}}
            yield Site(redis, Path(folder), model, worker, dsn, sections)


@asynccontextmanager
async def pair(model: Path, worker: Worker, **options: Any) -> AsyncIterator[tuple[Router, Router, RedisServer]]:
    """Two routers; `options` are those of `run_site`."""
    async with run_site(model, worker, **options) as site, site.router("one") as one, site.router("two") as two:
        yield one, two, site.redis

"""Routers that are killed in the middle of their work: the ledger says what the engine made, no more and no less."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tidegate import Client, TidegateError

from router.store.database import Database
from router.store.rows import UsageRow
from router.store.usage import UsageStore, Whose
from tests.bench.postgres import migrated_database
from tests.bench.tenants import LONG_AGO, SOON
from tests.bench.waiting import until
from tests.bench.whole import ask
from tests.bench.worker import Worker
from tests.e2e.asking import is_serving

pytestmark = pytest.mark.slow  # real processes

TURNS = 200


class RouterProcess:
    """A router in a process of its own, with a name and folder that outlive it."""

    def __init__(self, config: Path) -> None:
        self._config = config

    @asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
        """Its address and process; when left, one that still runs is stopped in good order."""
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "router", str(self._config), stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        try:
            yield line.removeprefix("router ready on ").strip(), process
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


def write_config(folder: Path, model: Path, worker: str, dsn: str) -> Path:
    path = folder / "router.toml"
    path.write_text(f"""
name = "router-1"
listen = "127.0.0.1:0"
[[models]]
name = "test"
path = "{model}"
workers = ["{worker}"]
[store]
folder = "{folder}/store"
dsn = "{dsn}"
[auth]
anonymous = true
""")
    return path


async def ask_many(target: str, sizes: Sequence[int]) -> None:
    """Runs turns of these sizes at once, for as long as the router lives."""
    async with Client(target) as client, client.session() as session:
        turns = [await session.start(ask(), max_output_tokens=size) for size in sizes]
        await asyncio.gather(*(turn.text() for turn in turns))


async def read_entries(dsn: str) -> list[UsageRow]:
    async with Database(dsn).running() as database:
        return [row async for row in UsageStore(database).read(LONG_AGO, SOON, Whose())]


async def test_what_a_killed_router_had_running_is_charged_as_the_engine_made_it(chatml: Path, tmp_path: Path) -> None:
    """Two hundred turns, a router killed -9 at random moments among them, again and again: each turn has one entry, and their tokens are
    the engine's own count."""
    chance = random.Random(7)
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens, step_s=0.002)
    async with migrated_database() as dsn, worker.running():
        process = RouterProcess(write_config(tmp_path, chatml, worker.address, dsn))
        while worker.calls < TURNS:
            async with process.running() as (target, router):
                await until(lambda: is_serving(target))
                asyncio.get_running_loop().call_later(chance.uniform(0.1, 1.0), router.kill)
                with suppress(TidegateError):  # all may have ended just before
                    await ask_many(target, [chance.randrange(1, 300) for _ in range(40)])
            await until(lambda: not worker.engine.has_work())
        async with process.running():
            await until_settled(dsn, worker)
        rows = await read_entries(dsn)
    assert len({row.turn for row in rows}) == len(rows)
    assert sum(row.completion_tokens for row in rows) == worker.engine.made
    assert {row.finish for row in rows} == {"length", "lost"}


async def until_settled(dsn: str, worker: Worker) -> None:
    """Waits until the last router has had its receipts; the sum above then says whether it did."""

    async def is_settled() -> bool:
        return sum(row.completion_tokens for row in await read_entries(dsn)) >= worker.engine.made

    await until(is_settled)

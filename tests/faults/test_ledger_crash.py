"""Routers are killed and databases go away at any moment: the ledger holds what was acknowledged, once."""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import AsyncExitStack
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from router.ledger.ledger import Ledger
from router.store.database import Database
from router.store.rows import UsageRow
from router.store.usage import UsageStore
from tests.bench.postgres import fresh_database, outage
from tests.bench.waiting import until
from tests.unit.router.ledger.entries import START, entry_of

pytestmark = pytest.mark.slow  # real servers, and bounds in real time

ALL = 200
SINCE, UNTIL = (datetime.fromtimestamp(START + shift, UTC) for shift in (-9, 9))
DAY = date(2027, 1, 15)


async def run_writer(dsn: str, folder: Path, first: int, kill_after: int | None) -> set[int]:
    """Runs a router's ledger in a process, kills it -9 after some acknowledgements, or lets it end; what it acknowledged."""
    command = (sys.executable, "-m", "tests.bench.ledger_writer", dsn, str(folder), str(first), str(ALL))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    acknowledged: set[int] = set()
    async for line in process.stdout:
        if line.strip().isdigit():
            acknowledged.add(int(line))
        if kill_after is not None and len(acknowledged) == kill_after:
            process.kill()
            kill_after = None
    await process.wait()
    return acknowledged


async def read_all(database: Database) -> list[UsageRow]:
    return [row async for row in UsageStore(database).read(SINCE, UNTIL)]


async def test_killed_routers_lose_and_double_nothing(tmp_path: Path) -> None:
    """Killed -9 at random points of 200 entries, some while the database is away; entries in flight are recorded again by the next router.

    At each death every acknowledged entry is in the database or in the folder; in the end the ledger and its sums are exact.
    """
    chance, acknowledged = random.Random(5), set[int]()
    async with fresh_database() as (database, dsn):
        for life in range(6):
            async with AsyncExitStack() as stack:
                if life in {1, 2, 4}:
                    await stack.enter_async_context(outage(dsn))
                first = min(set(range(ALL)) - acknowledged)
                acknowledged |= await run_writer(dsn, tmp_path, first, chance.randrange(5, 40))
        assert 30 < len(acknowledged) < ALL
        async with Ledger(tmp_path, UsageStore(database)).running() as ledger:
            await ledger.written()
        assert acknowledged <= {row.completion_tokens for row in await read_all(database)}
        assert await run_writer(dsn, tmp_path, min(set(range(ALL)) - acknowledged), None)
        rows = await read_all(database)
        assert sorted((row.turn, row.completion_tokens) for row in rows) == sorted((f"t{number}", number) for number in range(ALL))
        (day,) = [day async for day in UsageStore(database).read_days(DAY, DAY)]
        assert (day.turns, day.prompt_tokens, day.cached_tokens, day.completion_tokens) == (ALL, 100 * ALL, 80 * ALL, sum(range(ALL)))


async def test_connections_that_break_while_writing_double_nothing(tmp_path: Path) -> None:
    """The database goes away again and again while entries are written, so that some commits are done and not confirmed."""
    async with fresh_database() as (database, dsn), Ledger(tmp_path, UsageStore(database), drain_s=30.0).running() as ledger:
        for number in range(ALL):
            ledger.record(entry_of(f"t{number}", completion_tokens=number))
            await ledger.durable()
            if number % 40 == 20:
                async with outage(dsn):
                    await asyncio.sleep(0.01)
        await ledger.written()
        assert sorted(row.completion_tokens for row in await read_all(database)) == list(range(ALL))
        (day,) = [day async for day in UsageStore(database).read_days(DAY, DAY)]
        assert (day.turns, day.completion_tokens) == (ALL, sum(range(ALL)))


async def test_two_routers_with_the_same_entries_write_them_once(tmp_path: Path) -> None:
    """As after a folder was copied: in any order, without a deadlock, and the sums count each turn once."""
    turns = [entry_of(f"t{number}", user=f"u{number % 7}") for number in range(ALL)]
    async with fresh_database() as (database, dsn), Database(dsn).running() as other:
        stores = [UsageStore(database), UsageStore(other)]

        async def add(store: UsageStore, seed: int) -> int:
            mine, added = random.Random(seed).sample(turns, ALL), 0
            for at in range(0, ALL, 20):
                added += await store.add([entry.to_line() for entry in mine[at : at + 20]])
            return added

        assert sum(await asyncio.gather(*(add(store, seed) for seed, store in enumerate(stores)))) == ALL
        assert sum([day.turns async for day in stores[0].read_days(DAY, DAY)]) == ALL


async def test_an_entry_that_no_database_takes_holds_up_no_other(tmp_path: Path) -> None:
    """A NUL in a name, which PostgreSQL's JSON cannot hold: the entry is put aside, the rest is written."""
    async with fresh_database() as (database, _), Ledger(tmp_path, UsageStore(database)).running() as ledger:
        for number in range(9):
            ledger.record(entry_of(f"t{number}", completion_tokens=number, user="nul\0" if number == 4 else "ann"))
        ledger.record(entry_of("t9", cached_tokens=101, completion_tokens=9))
        await ledger.written()
        await until((tmp_path / "refused.jsonl").exists)
        assert sorted(row.completion_tokens for row in await read_all(database)) == [0, 1, 2, 3, 5, 6, 7, 8]
        assert len((tmp_path / "refused.jsonl").read_text().splitlines()) == 2

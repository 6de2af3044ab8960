"""A process that records usage until it is killed: `python -m tests.bench.ledger_writer DSN FOLDER FIRST LAST`.

It prints the number of each entry once that is durable, several at a time as turns end, and `written` when all are in the database.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from router.ledger.ledger import Ledger
from router.store.database import Database
from router.store.usage import UsageStore
from tests.unit.router.ledger.entries import entry_of


async def _record(ledger: Ledger, number: int) -> None:
    ledger.record(entry_of(f"t{number}", completion_tokens=number))
    await ledger.durable()
    print(number, flush=True)


async def _main(dsn: str, folder: str, first: str, last: str) -> None:
    numbers = range(int(first), int(last))
    async with Database(dsn, timeout_s=0.5).running() as database, Ledger(Path(folder), UsageStore(database)).running() as ledger:
        for at in numbers[::3]:
            await asyncio.gather(*(_record(ledger, number) for number in numbers[at - numbers.start :][:3]))
            await asyncio.sleep(0.002)
        await ledger.written()
        print("written", flush=True)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))

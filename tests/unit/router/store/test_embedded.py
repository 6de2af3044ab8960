"""The PostgreSQL that comes in a wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.store.database import Database
from router.store.embedded import embedded_postgres
from tests.bench.waiting import until

_LEAVE = """
import asyncio, os, sys
from pathlib import Path
from router.store.database import Database
from router.store.embedded import embedded_postgres

async def main():
    async with embedded_postgres(Path(sys.argv[1])) as dsn, Database(dsn).running() as database:
        await database.execute("CREATE TABLE kept (id int)")
        os.kill(os.getpid(), 9)

asyncio.run(main())
"""


def start_and_die(folder: Path) -> None:
    """Runs a router's database in a process that gets killed."""
    ended = subprocess.run([sys.executable, "-c", _LEAVE, str(folder)], check=False, env={**os.environ, "PYTHONPATH": "."})
    assert ended.returncode == -9


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's system user can enter, which pytest's are not."""
    parent = Path(tempfile.mkdtemp(prefix="tidegate-pg-"))
    yield parent / "data"
    shutil.rmtree(parent)


async def test_data_outlives_the_server_and_a_killed_router(folder: Path) -> None:
    """The next router goes on with what one that was killed with -9 left, and no server stays behind when it ends."""
    start_and_die(folder)
    async with embedded_postgres(folder) as dsn, Database(dsn).running() as database:
        assert await database.execute("SELECT * FROM kept") == 0
    await until(lambda: not (folder / "postmaster.pid").exists())

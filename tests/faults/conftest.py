"""What every fault test ends with: no task or thread of ours is left over, and no output holds the canary."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator

import pytest

from tests.bench.waiting import until
from tests.bench.whole import CANARY

_OUR_THREADS = ("engine", "tokenize")


@pytest.fixture(autouse=True)
async def nothing_left_over(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> AsyncIterator[None]:
    """Fails a test that leaves a task or thread running, or lets the canary out."""
    caplog.set_level(logging.DEBUG, "tidegate")
    yield
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()}, within_s=2.0)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith(_OUR_THREADS)]
    logged = "\n".join(logging.Formatter().format(record) for record in caplog.get_records("call"))
    assert CANARY not in logged + "".join(capfd.readouterr())

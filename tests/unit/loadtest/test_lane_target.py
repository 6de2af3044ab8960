"""Reading a worker's lane without a router, as the yardstick of the router's cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from loadtest.record import Outcome, Record
from loadtest.targets.lane import LaneTarget

from tests.bench.waiting import until
from tests.bench.worker import End, Finish, Item, Wait, Worker
from tests.unit.loadtest.fakes import make_request


async def ask(worker: Worker, count: int = 1) -> list[Record]:
    records = [Record(number, "", time.perf_counter()) for number in range(count)]
    async with LaneTarget.open(worker.address, encode=lambda text: [40, 41]) as target:
        await asyncio.wait_for(asyncio.gather(*(target.run(make_request(each.number), each) for each in records)), 10)
    return records


async def test_whole_answers(chatml: Path) -> None:
    """Many at once on the one lane, with their tokens counted."""
    async with Worker(chatml, ["a", Wait(0.02), "bc"]).running() as worker:
        records = await ask(worker, 10)
    assert {(record.outcome, record.tokens, len(record.arrivals)) for record in records} == {(Outcome.COMPLETED, 3, 2)}


@pytest.mark.parametrize("script", [["a", End(Finish.FAILED, "boom")]])
async def test_failures_are_failures(chatml: Path, script: Sequence[Item]) -> None:
    """With the worker's code."""
    async with Worker(chatml, script).running() as worker:
        (record,) = await ask(worker)
    assert (record.outcome, record.reason) == (Outcome.FAILED, "FAILED")


async def test_a_cancelled_request_is_cancelled_in_the_engine(chatml: Path) -> None:
    """As a router would."""
    async with Worker(chatml, ["a", Wait(100)]).running() as worker:
        async with LaneTarget.open(worker.address, encode=lambda text: [40, 41]) as target:
            record = Record(0, "", 0.0)
            running = asyncio.create_task(target.run(make_request(), record))
            await until(lambda: len(record.arrivals) == 1)
            running.cancel()
            await asyncio.wait({running})
            await until(lambda: worker.engine.cancelled == 1)

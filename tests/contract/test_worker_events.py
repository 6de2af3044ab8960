"""What workers tell wakes nobody whom it does not concern."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from router.admission.queue import AdmissionQueue
from router.app import App, build
from router.config import read_config
from router.transport.health import Health
from server.lanes import Frame
from tests.bench.raw_worker import LOAD, Requests, Responses, greeting, run_raw_worker, write_frame
from tests.bench.router import values_of
from tests.bench.waiting import until

FRAMES = 20
BUSY_US = 2 * LOAD.step_us


@pytest.fixture
def app(chatml: Path, tmp_path: Path) -> Iterator[App]:
    """A router of two models, built and not started: the tests run its workers."""
    app = build(read_config(values_of(chatml, "127.0.0.1:1", small=["127.0.0.1:2"], store={"folder": str(tmp_path)})))
    yield app
    app.executor.shutdown()


@asynccontextmanager
async def at_work(app: App, model: str, play: Callable[[Requests], Responses]) -> AsyncIterator[None]:
    """The model has a worker that plays this, and it is up."""
    async with run_raw_worker(play) as address:
        (worker,) = app.pools[model].fleet.update({address})
        task = asyncio.create_task(worker.run())
        try:
            await until(lambda: worker.up)
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@contextmanager
def counting() -> Iterator[Counter[object]]:
    """How often each queue is poked, and the health service is told of workers."""
    calls: Counter[object] = Counter()
    codes = {AdmissionQueue.poke.__code__, Health.publish.__code__}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes:
            calls[frame.f_locals["self"]] += 1

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def test_turns_of_other_routers_that_end_poke_the_queue_of_that_model(app: App, chatml: Path) -> None:
    """One queue a frame, and no health watcher, although it may come with every engine step."""
    begin = asyncio.Event()

    async def idle(requests: Requests) -> Responses:
        async for _ in requests:
            yield greeting(chatml)
            await asyncio.Event().wait()

    async def shared(requests: Requests) -> Responses:
        async for _ in requests:
            yield greeting(chatml)
            await begin.wait()
            for number in range(FRAMES + 1):
                yield write_frame(Frame(2 + number, replace(LOAD, active=FRAMES - number, step_us=BUSY_US)))
            await asyncio.Event().wait()

    async with at_work(app, "small", idle), at_work(app, "test", shared):
        (worker,) = app.pools["test"].fleet
        with counting() as calls:
            begin.set()
            await until(lambda: (worker.load.active, worker.load.step_us) == (0, BUSY_US))
        assert calls == {app.pools["test"].queue: FRAMES}


async def test_a_worker_that_comes_is_told_to_the_health_service_and_its_own_queue(app: App, chatml: Path) -> None:
    """Each once."""

    async def play(requests: Requests) -> Responses:
        async for _ in requests:
            yield greeting(chatml)
            await asyncio.Event().wait()

    app.pools["test"].fleet.update(())
    with counting() as calls:
        async with at_work(app, "test", play):
            assert calls == {app.health: 2, app.pools["test"].queue: 2}, "the address, and its connection"

"""A router that falls behind on its lane: it gets what it missed in one frame, every token once, and costs nobody else anything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from router.model import GenerationRequest, Sampling, WorkerFinish
from router.upstream.contract import Frame, acknowledge, attach, cancel, generate, read_frame
from server.engine.base import Output
from server.lanes import WINDOW, Lane
from server.options import EngineOptions, describe_folder
from tests.bench.raw_worker import LOAD
from tests.bench.router import run_router
from tests.bench.waiting import until
from tests.bench.whole import ask
from tests.bench.worker import Worker


class RawLane:
    """A lane that does only what a test says: it acknowledges nothing by itself."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def start(self, number: int, tokens: int) -> None:
        await self._call.write(generate("lane", number, GenerationRequest([40], tokens, Sampling())))

    async def cancel(self, number: int) -> None:
        await self._call.write(cancel("lane", [number]))

    async def acknowledge(self, sequence: int) -> None:
        await self._call.write(acknowledge("lane", sequence))

    async def read(self, count: int) -> list[Frame]:
        return [read_frame((await self._call.read()).infer_response) for _ in range(count)]


@asynccontextmanager
async def open_lane(worker: Worker) -> AsyncIterator[RawLane]:
    async with grpc.aio.insecure_channel(worker.address) as channel:
        call = GRPCInferenceServiceStub(channel).ModelStreamInfer()
        await call.write(attach("lane"))
        yield RawLane(call)
        call.cancel()


async def test_a_router_that_is_behind_gets_the_rest_in_one_frame(chatml: Path) -> None:
    """After a window of unread frames the worker sends nothing; with the next acknowledgement comes all of it, merged and with the end."""
    worker = Worker(chatml, lambda _: ["abc"] * 300, step_s=0.001)
    async with worker.running(), open_lane(worker) as lane:
        await lane.start(1, 900)
        frames = await lane.read(WINDOW)
        await until(lambda: not worker.engine.has_work())
        await lane.acknowledge(frames[-1].sequence)
        frames += await lane.read(1)
    deltas = [delta for frame in frames for _, delta in frame.entries]
    assert [token for delta in deltas for token in delta.tokens] == [*worker.tokens_of("abc")] * 300
    assert [frame.sequence for frame in frames] == list(range(1, WINDOW + 2))
    assert [delta.finish for delta in deltas] == [WorkerFinish.RUNNING] * (len(deltas) - 1) + [WorkerFinish.LENGTH]


async def test_a_router_that_is_behind_holds_up_no_other(chatml: Path) -> None:
    """While one router's lane is stuck another router's turns bring their tokens and finish."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens, step_s=0.001)
    async with worker.running(), run_router(chatml, worker.address) as router, open_lane(worker) as lane:
        await lane.start(1, 2000)
        await lane.read(WINDOW)
        async with router.client() as client, client.session() as session:
            turn = await session.start(ask(), max_output_tokens=200)
            assert await turn.text() == "a" * 200
        assert worker.engine.has_work()
    await worker.stop()


async def test_a_router_that_is_behind_can_still_cancel(chatml: Path) -> None:
    """A cancel on a stuck lane ends the request in the engine, and what it had produced is not sent any more."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens, step_s=0.001)
    async with worker.running(), open_lane(worker) as lane:
        await lane.start(1, 2000)
        await lane.read(WINDOW)
        await lane.cancel(1)
        await until(lambda: not worker.engine.has_work())
        await lane.acknowledge(WINDOW)
        await lane.start(2, 1)
        (frame,) = await lane.read(1)
    assert [number for number, _ in frame.entries] == [2]


@pytest.mark.timeout(10)
def test_a_step_costs_the_same_however_far_a_router_is_behind(chatml: Path) -> None:
    """Merging a step into what waits does not copy what waits: a router that stands still does not slow the engine down."""
    lane = Lane(describe_folder(EngineOptions(chatml, "test", "scripted", kv_blocks=1)))
    for _ in range(200_000):
        lane.add(1, Output(1, [7, 8], log_probs=[0.5, 0.25]))
    frame = lane.take_frame(LOAD)
    assert frame is not None
    assert frame.counts == [400_000]
    assert frame.log_probs == [0.5, 0.25] * 200_000

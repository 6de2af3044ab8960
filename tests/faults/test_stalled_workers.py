"""Workers that accept and never speak: limits end the turn, free the worker, and leave everybody else alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from tidegate import TidegateError
from tidegate.v1.chat_service_pb2 import CompleteRequest
from tidegate.v1.turn_pb2 import TurnSpec

from tests.bench.raw_worker import Requests, Responses, greeting, run_raw_worker
from tests.bench.router import run_router
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Item, Wait, Worker

LIMITS = {"first_token_s": 0.3, "idle_s": 0.15}


@pytest.mark.parametrize("script", [[Wait(1000)], ["a", Wait(1000)], ["a", "b", Wait(0.05), "c", Wait(1000)]])
async def test_a_turn_that_stands_still_is_ended(chatml: Path, script: list[Item]) -> None:
    """Without a first token, or without another one, in time, a turn fails as stalled and leaves the engine."""
    worker = Worker(chatml, script)
    async with run_bench(chatml, worker, timeouts=LIMITS) as router, router.client() as client, client.session() as session:
        turn = await session.start(ask())
        with pytest.raises(TidegateError) as caught:
            await turn.text()
        assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.UNAVAILABLE, "WORKER_STALLED")
        await until(lambda: worker.engine.cancelled == 1)


async def test_a_stalled_turn_leaves_its_neighbours_alone(chatml: Path) -> None:
    """While one turn of a worker stands still the others on the same lane bring their tokens and finish."""
    worker = Worker(chatml, lambda _: [Wait(1000)] if worker.calls == 1 else ["a"] * 300)
    async with run_bench(chatml, worker, timeouts=LIMITS) as router, router.client() as client, client.session() as session:
        stalled = await session.start(ask())
        others = [await session.start(ask(), max_output_tokens=300) for _ in range(5)]
        assert await asyncio.gather(*(turn.text() for turn in others)) == ["a" * 300] * 5
        with pytest.raises(TidegateError, match="WORKER_STALLED"):
            await stalled.text()


async def test_a_slow_answer_within_the_limits_is_not_ended(chatml: Path) -> None:
    """A turn may take many times the idle limit as long as each token comes within it."""
    script: list[Item] = [item for _ in range(6) for item in ("a", Wait(0.06))]
    async with run_bench(chatml, Worker(chatml, script), timeouts=LIMITS) as router, router.client() as client:
        whole = await client.stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask()])))
        assert whole.text == "a" * 6


async def greet_and_hang(folder: Path, requests: Requests) -> Responses:
    yield greeting(folder)
    await asyncio.Event().wait()


async def test_a_worker_that_falls_silent_is_given_up(chatml: Path) -> None:
    """When a connected worker sends no frame at all for the limit, its turns fail and the router attaches anew."""
    attached = 0

    async def play(requests: Requests) -> Responses:
        nonlocal attached
        attached += 1
        async for response in greet_and_hang(chatml, requests):
            yield response

    limits = {"worker_silence_s": 0.3}
    async with run_raw_worker(play) as address, run_router(chatml, address, timeouts=limits) as router, router.client() as client:
        async with client.session() as session:
            turn = await session.start(ask())
            with pytest.raises(TidegateError) as caught:
                await turn.text()
        assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.UNAVAILABLE, "WORKER_LOST")
        await until(lambda: attached == 2)


async def test_a_worker_that_never_greets_gets_no_turns(chatml: Path) -> None:
    """A worker that accepts the connection and says nothing is not up: turns go to the other one, and fail at once without one."""

    async def play(requests: Requests) -> Responses:
        await asyncio.Event().wait()
        yield greeting(chatml)

    async with run_raw_worker(play) as silent, Worker(chatml).running() as worker:
        async with run_router(chatml, silent, worker.address, wait_up=False) as router, router.client() as client:
            await until(lambda: any(lane.up for lane in router.app.workers))
            request = CompleteRequest(spec=TurnSpec(messages=[ask()]))
            assert [(await client.stub.Complete(request)).started.worker for _ in range(3)] == [worker.address] * 3
        async with run_router(chatml, silent, wait_up=False) as router, router.client() as client:
            with pytest.raises(grpc.aio.AioRpcError, match="no worker of this model is up"):
                await client.stub.Complete(request)

"""The router's stop: it says that it goes, lets running turns finish in time, and ends the rest with a reason instead of a silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest
from tidegate import Client, TidegateError
from tidegate.v1.chat_service_pb2 import CompleteRequest, ConverseRequest, Setup, StartTurn, StreamRequest
from tidegate.v1.event_pb2 import FINISH_REASON_LENGTH, FINISH_REASON_STOP
from tidegate.v1.turn_pb2 import TurnSpec

from tests.bench.calls import failure_of
from tests.bench.router import Router, run_router
from tests.bench.waiting import until
from tests.bench.whole import ask
from tests.bench.worker import Wait, Worker

ENDLESS = TurnSpec(messages=[ask()], max_output_tokens=2000)
SHORT = TurnSpec(messages=[ask()], max_output_tokens=5)


class Stopping:
    """A router that a test stops while its callers are connected."""

    def __init__(self, router: Router, client: Client, stack: AsyncExitStack) -> None:
        self.router = router
        self.client = client
        self._stack = stack

    def begin_stop(self) -> asyncio.Task[None]:
        """Asks the router to stop; the task ends when it has."""
        return asyncio.create_task(self._stack.aclose())


@asynccontextmanager
async def run_stopping(worker: Worker, drain_s: float) -> AsyncIterator[Stopping]:
    """A router that can be stopped inside, with a caller; whatever happens to the callers, the engine is empty in the end."""
    async with worker.running(), AsyncExitStack() as stack:
        router = await stack.enter_async_context(run_router(worker.folder, worker.address, timeouts={"drain_s": drain_s}))
        async with router.client() as client:
            yield Stopping(router, client, stack)
        await until(lambda: not worker.engine.has_work())
        assert router.turns_in_lanes() == 0


async def test_running_turns_finish_within_the_grace(chatml: Path) -> None:
    """Turns that run when the stop begins complete on every kind of call, and the stop waits for them and no longer."""
    worker = Worker(chatml, [Wait(0.2), "ok"])
    async with run_stopping(worker, drain_s=600.0) as stopping:
        stub, spec = stopping.client.stub, TurnSpec(messages=[ask()])
        whole, stream = stub.Complete(CompleteRequest(spec=spec)), stub.Stream(StreamRequest(spec=spec))
        async with stopping.client.session() as session:
            turn = await session.start(ask())
            await until(lambda: worker.calls == 3)
            stop = stopping.begin_stop()
            assert await turn.text() == "ok"
            assert session.going_away
        frames = [frame async for frame in stream]
        assert frames[-1].events[-1].finished.finish_reason == FINISH_REASON_STOP
        assert (await whole).text == "ok"
        await asyncio.wait_for(stop, 60.0)


async def test_turns_over_the_grace_fail_as_draining(chatml: Path) -> None:
    """What still runs when the grace is over ends with DRAINING, which says to come back, on every kind of call, long before it is done."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens, step_s=0.05)
    async with run_stopping(worker, drain_s=0.2) as stopping:
        stub = stopping.client.stub
        start = ConverseRequest(start=StartTurn(turn=1, spec=ENDLESS))
        converse = stub.Converse(iter((ConverseRequest(setup=Setup()), start)))
        calls = [stub.Complete(CompleteRequest(spec=ENDLESS)), stub.Stream(StreamRequest(spec=ENDLESS))]
        await until(lambda: worker.calls == 3)
        stop = stopping.begin_stop()
        async with asyncio.timeout(60.0):
            events = [event async for frame in converse for event in frame.events]
            errors = [TidegateError(events[-1].failed.status), *[await failure_of(call) for call in calls]]
        await stop
    assert {(error.code, error.reason, error.retry_after) for error in errors} == {(grpc.StatusCode.UNAVAILABLE, "DRAINING", 0.5)}
    assert events[-2].HasField("usage")
    assert any(event.HasField("go_away") for event in events)
    assert not any(event.HasField("finished") for event in events)


async def test_new_turns_fail_while_the_router_drains(chatml: Path) -> None:
    """Once the stop has begun, new turns on open streams and new calls are refused with DRAINING, while a running turn goes on."""
    worker = Worker(chatml, [Wait(0.3), "ok"])
    async with run_stopping(worker, drain_s=5.0) as stopping:
        async with stopping.client.session() as session:
            running = await session.start(ask())
            await until(lambda: worker.calls == 1)
            stop = stopping.begin_stop()
            await until(lambda: session.going_away)
            late = await session.start(ask())
            with pytest.raises(TidegateError, match="DRAINING"):
                await late.text()
            for request in (CompleteRequest(spec=SHORT), StreamRequest(spec=SHORT)):
                call = (
                    stopping.client.stub.Complete(request) if isinstance(request, CompleteRequest) else stopping.client.stub.Stream(request)
                )
                assert (await failure_of(call)).reason == "DRAINING"
            with pytest.raises(TidegateError, match="UNAVAILABLE"):
                async with stopping.client.session() as refused:
                    await (await refused.start(ask())).text()
            assert await running.text() == "ok"
        await stop
    assert worker.calls == 1


async def test_idle_streams_are_told_and_end(chatml: Path) -> None:
    """Streams without a running turn, set up or not, get go_away with the grace, end with OK, and do not hold up the stop."""
    async with run_stopping(Worker(chatml), drain_s=600.0) as stopping:
        forever = asyncio.Event()

        async def silent() -> AsyncIterator[ConverseRequest]:
            yield ConverseRequest(setup=Setup())
            await forever.wait()

        call = stopping.client.stub.Converse(silent())
        await call.read()
        stop = stopping.begin_stop()
        frame = await call.read()
        assert frame.events[0].go_away.grace.ToTimedelta().total_seconds() == 600.0
        assert await call.read() is grpc.aio.EOF
        assert await call.code() == grpc.StatusCode.OK
        await asyncio.wait_for(stop, 60.0)
        forever.set()


async def test_a_turn_that_finishes_during_the_drain_is_not_failed(chatml: Path) -> None:
    """Of two turns on one stream, the one that is done in time finishes and only the other fails."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens, step_s=0.005)
    async with run_stopping(worker, drain_s=0.4) as stopping, stopping.client.session() as session:
        quick = await session.start(ask(), max_output_tokens=20)
        slow = await session.start(ask(), max_output_tokens=2000)
        await until(lambda: worker.calls == 2)
        stop = stopping.begin_stop()
        assert await quick.text() == "a" * 20
        assert quick.finish_reason == FINISH_REASON_LENGTH
        with pytest.raises(TidegateError, match="DRAINING"):
            await slow.text()
        await stop

"""Callers that leave, in every way they can: what they asked for leaves the engine, and nothing of theirs stays in the router."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc
import pytest
from tidegate import Client, assistant, user
from tidegate.v1.chat_service_pb2 import CompleteRequest, ConverseRequest, Setup, StartTurn, StreamRequest
from tidegate.v1.chat_service_pb2_grpc import ChatServiceStub
from tidegate.v1.turn_pb2 import TurnSpec

from tests.bench.resuming import ResumingCaller
from tests.bench.tenants import entries
from tests.bench.tracing import SAMPLED
from tests.bench.waiting import until
from tests.bench.whole import ask, is_idle, run_bench
from tests.bench.wires import Face, on_both_faces
from tests.bench.worker import Wait, Worker

ENDLESS = TurnSpec(messages=[ask()], max_output_tokens=2000)
SLOTS = 64
"""Sequences that the scripted worker runs at once."""

SETUP = ConverseRequest(setup=Setup())
START = ConverseRequest(start=StartTurn(turn=1, spec=ENDLESS))


def endless(folder: Path) -> Worker:
    """A worker whose answers take about four seconds."""
    return Worker(folder, lambda _: ["a"] * 2000)


async def cancel_converse(stub: ChatServiceStub, made: Callable[[], Awaitable[None]]) -> None:
    call = stub.Converse(iter((SETUP, START)))
    await made()
    call.cancel()


async def cancel_turn(stub: ChatServiceStub, made: Callable[[], Awaitable[None]]) -> None:
    async def messages() -> AsyncIterator[ConverseRequest]:
        yield SETUP
        yield START
        await made()
        yield ConverseRequest(cancel={"turn": 1})

    frames = [frame async for frame in stub.Converse(messages())]
    assert frames[-1].events[-1].HasField("finished")


async def cancel_stream(stub: ChatServiceStub, made: Callable[[], Awaitable[None]]) -> None:
    call = stub.Stream(StreamRequest(spec=ENDLESS))
    await made()
    call.cancel()


async def cancel_complete(stub: ChatServiceStub, made: Callable[[], Awaitable[None]]) -> None:
    call = stub.Complete(CompleteRequest(spec=ENDLESS))
    await made()
    call.cancel()


async def let_deadline_pass(stub: ChatServiceStub, made: Callable[[], Awaitable[None]]) -> None:
    call = stub.Complete(CompleteRequest(spec=ENDLESS), timeout=0.3)
    await made()
    assert await call.code() == grpc.StatusCode.DEADLINE_EXCEEDED


WAYS_TO_LEAVE = [cancel_converse, cancel_turn, cancel_stream, cancel_complete, let_deadline_pass]


@pytest.mark.parametrize("leave", WAYS_TO_LEAVE)
async def test_a_caller_that_leaves_ends_the_generation(chatml: Path, leave: Callable[..., Awaitable[None]]) -> None:
    """After the caller has left, the engine makes no further token for it, whichever way it left and asked."""
    worker = endless(chatml)

    async def three_tokens() -> None:
        await until(lambda: bool(worker.engines) and worker.engine.made >= 3)

    async with run_bench(chatml, worker) as router, router.stub() as stub:
        await leave(stub, three_tokens)
        await until(lambda: is_idle(router, worker), within_s=1.0)
        assert worker.engine.cancelled == 1
        assert worker.engine.made < 1000


async def test_a_dropped_connection_ends_its_generations(chatml: Path) -> None:
    """When the caller's connection goes without a word, all that ran over it leaves the engine."""
    worker = endless(chatml)
    async with run_bench(chatml, worker) as router:
        async with router.stub() as stub:
            calls = [
                stub.Converse(iter((SETUP, START))),
                stub.Stream(StreamRequest(spec=ENDLESS)),
                stub.Complete(CompleteRequest(spec=ENDLESS)),
            ]
            await until(lambda: worker.calls == len(calls))
        await until(lambda: worker.engine.cancelled == len(calls), within_s=1.0)


async def test_a_turn_cancelled_while_it_waits_never_reaches_the_engine(chatml: Path) -> None:
    """It brings no token, and the next in line gets the place."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens, max_sequences=1)
    async with run_bench(chatml, worker) as router, router.client() as client, client.session() as session:
        first = await session.start(ask(), max_output_tokens=100)
        queued = await session.start(ask(), max_output_tokens=1000)
        last = await session.start(ask(), max_output_tokens=10)
        await until(lambda: router.app.pools["test"].queue.waiting == 2)
        await queued.cancel()
        texts = [await turn.text() for turn in (first, queued, last)]
    assert worker.calls == 2
    assert texts == ["a" * 100, "", "a" * 10]
    assert worker.engine.made == 110


async def test_a_turn_cancelled_with_its_start_is_cancelled(chatml: Path) -> None:
    """Start and cancel that arrive together give a turn that finishes as cancelled, not one without an end."""
    async with run_bench(chatml, endless(chatml)) as router, router.stub() as stub:
        messages = [SETUP, START, ConverseRequest(cancel={"turn": 1})]
        frames = [frame async for frame in stub.Converse(iter(messages))]
    events = [event for frame in frames for event in frame.events]
    assert events[-1].HasField("finished")


async def test_a_traced_turn_cancelled_at_once_leaves_the_engine(chatml: Path) -> None:
    """A traced turn travels on a stream of its own; a cancel that overtakes it still ends it."""
    worker = endless(chatml)
    async with run_bench(chatml, worker) as router, router.client(headers=SAMPLED) as client, client.session() as session:
        for _ in range(20):
            turn = await session.start(ask(), max_output_tokens=2000)
            await turn.cancel()
            await turn.text()
        await until(lambda: not worker.engine.has_work(), within_s=1.0)


async def test_callers_that_leave_free_the_way_for_the_next(chatml: Path) -> None:
    """Twenty calls that hang in a worker and are cancelled leave no thread behind; the next call is served."""
    worker = Worker(chatml, lambda _: [Wait(1000)] if worker.calls <= 20 else ["ok"])
    async with run_bench(chatml, worker) as router, router.stub() as stub:
        calls = [stub.Complete(CompleteRequest(spec=ENDLESS)) for _ in range(20)]
        await until(lambda: worker.calls == 20)
        for call in calls:
            call.cancel()
        await until(lambda: worker.engine.cancelled == 20)
        assert (await stub.Complete(CompleteRequest(spec=ENDLESS))).text == "ok"


async def test_calls_cancelled_while_long_prompts_are_tokenized_free_the_threads(chatml: Path) -> None:
    """Callers that leave while their long prompts wait for the tokenizer's threads do not hold up who comes next."""
    # Said by the model: a caller's own text of this length is refused before it is tokenized.
    long = CompleteRequest(spec=TurnSpec(messages=[user("go on"), assistant("long " * 100_000)]))
    async with run_bench(chatml, Worker(chatml)) as router, router.stub() as stub:
        calls = [stub.Complete(long) for _ in range(20)]
        await asyncio.sleep(0.05)
        for call in calls:
            call.cancel()
        assert (await stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask("x" * 1000)])))).text == "ok"


async def test_a_storm_of_cancelled_streams_leaves_nothing(chatml: Path) -> None:
    """Five hundred streams with a turn each, of which as many run as the worker takes and the others wait, are all cancelled at once."""
    worker = Worker(chatml, lambda _: ["a"] * 2000, step_s=0.05)
    async with run_bench(chatml, worker) as router, router.stub() as stub:
        calls = [stub.Converse(iter((SETUP, START))) for _ in range(500)]
        await until(lambda: worker.calls == SLOTS and router.app.pools["test"].queue.waiting == len(calls) - SLOTS, within_s=30.0)
        for call in calls:
            call.cancel()
        await until(lambda: is_idle(router, worker))
        assert worker.engine.cancelled == worker.calls >= SLOTS
        assert (await stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask()], max_output_tokens=2)))).text == "aa"


async def test_abandoned_iterations_finish_without_a_warning(chatml: Path) -> None:
    """A hundred iterations dropped half-way, then collected, give no warning and leave nothing running."""
    worker = endless(chatml)
    async with run_bench(chatml, worker) as router, router.client() as client:
        for _ in range(20):
            await drop_five_turns(client)
        gc.collect()
        await until(lambda: is_idle(router, worker))


async def drop_five_turns(client: Client) -> None:
    async with client.session() as session:
        for _ in range(5):
            async for _ in await session.start(ask(), max_output_tokens=2000):
                break


async def test_leaving_the_loop_over_a_turn_cancels_it(chatml: Path) -> None:
    """A program that breaks out of the loop over a turn's events ends that turn at once; the stream and other turns live on."""
    worker = endless(chatml)
    async with run_bench(chatml, worker) as router, router.client() as client, client.session() as session:
        async for event in await session.start(ask(), max_output_tokens=2000):
            if event.HasField("text_delta"):
                break
        await until(lambda: worker.engine.cancelled == 1, within_s=1.0)
        turn = await session.start(ask(), max_output_tokens=10)
        assert await turn.text() == "a" * 10


@on_both_faces
async def test_callers_that_leave_at_the_end_are_booked_in_full(chatml: Path, face: Face) -> None:
    """However fast a caller drops its stream after the last event of a turn, that turn is complete in the ledger."""
    async with run_bench(chatml, Worker(chatml, ["ok"], step_s=0.0005)) as router, face.at(router) as dial:
        for _ in range(100):
            caller = ResumingCaller(0)
            await caller.connect(dial)
            await caller.read_until_ended(await caller.start(TurnSpec(messages=[ask()])))
            caller.cut()
        booked = await entries(router)
    assert [(entry.finish, entry.completion_tokens) for entry in booked] == [("stop", 2)] * 100

"""Long and hasty streams: messages that arrive in one go keep their meaning, and a stream costs the same after thousands of them."""

from __future__ import annotations

import asyncio
import gc
import logging
import tracemalloc
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from tidegate.v1.chat_service_pb2 import CancelTurn, ConverseRequest, ConverseResponse, Setup, StartTurn
from tidegate.v1.event_pb2 import FINISH_REASON_CANCELLED, Event
from tidegate.v1.turn_pb2 import TurnSpec

from router.config import Limits
from router.errors import draining
from router.model import Call, Finished, FinishReason, Sink, TurnRequest
from router.pipeline import Pipeline
from router.transport.session import Session
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Worker

SETUP = ConverseRequest(setup=Setup())


def start(turn: int) -> ConverseRequest:
    return ConverseRequest(start=StartTurn(turn=turn, spec=TurnSpec(messages=[ask()], max_output_tokens=1)))


class EndlessTurns(Pipeline):
    """Turns that run until they are cancelled, without a worker."""

    def __init__(self) -> None:
        pass

    def check_model(self, name: str) -> str:
        return "test"

    async def run(self, call: Call, request: TurnRequest, sink: Sink) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            sink([Finished(FinishReason.CANCELLED)])
            raise


async def open_session(limits: Limits) -> Session:
    session = Session(Call("id"), EndlessTurns(), limits)
    session.receive(SETUP)
    await session.outbox.take()
    return session


async def events_of(session: Session) -> list[Event]:
    """What the session has to send once its tasks have had their turn."""
    await asyncio.sleep(0.01)
    session.outbox.close()
    frame = await session.outbox.take()
    return list((frame or ConverseResponse()).events)


async def test_a_cancel_that_comes_with_its_start_ends_the_turn() -> None:
    """A turn that is cancelled before its task has begun still gets its terminal event."""
    session = await open_session(Limits())
    session.receive(start(1))
    session.receive(ConverseRequest(cancel=CancelTurn(turn=1)))
    events = await events_of(session)
    assert [event.finished.finish_reason for event in events] == [FINISH_REASON_CANCELLED]
    await session.close()


async def test_a_drain_that_comes_with_a_start_ends_the_turn() -> None:
    """The same holds for a turn that the router's stop finds before it has begun."""
    session = await open_session(Limits())
    session.receive(start(1))
    session.cancel_turns(draining())
    events = await events_of(session)
    assert [event.turn for event in events] == [1]
    await session.close()


async def test_refused_turns_leave_nothing_behind() -> None:
    """Turns over the limit of a stream, however many, are told and forgotten."""
    session = await open_session(Limits(max_turns_per_stream=1))
    session.receive(start(1))
    for turn in range(2, 1002):
        session.receive(start(turn))
    await session.outbox.take()
    growth = await memory_growth(refuse_turns(session, 1002, 11_002))
    assert growth < 64 * 1024
    await session.close()


async def refuse_turns(session: Session, first: int, last: int) -> None:
    for turn in range(first, last):
        session.receive(start(turn))
        await session.outbox.take()


async def test_a_long_stream_does_not_grow(chatml: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After hundreds of turns and thousands of other messages on one stream the process holds what it held before."""
    worker = Worker(chatml, step_s=0.0)
    caplog.set_level(logging.WARNING, "tidegate.turn")  # pytest keeps all lines

    async def run(first: int, last: int) -> None:
        await run_turns(call, first, last)
        worker.engine.requests.clear()  # what the scripted engine remembers for other tests

    async with run_bench(chatml, worker) as router, router.stub() as stub:
        call = stub.Converse()
        await call.write(SETUP)
        await run(1, 50)
        growth = await memory_growth(run(51, 250))
        call.cancel()
    assert growth < 256 * 1024


async def run_turns(call: Any, first: int, last: int) -> None:
    """Turns one after the other, each behind messages that have no effect."""
    for turn in range(first, last + 1):
        for _ in range(10):
            await call.write(ConverseRequest(cancel=CancelTurn(turn=turn)))
        await call.write(start(turn))
        while not any(event.HasField("finished") for event in (await call.read()).events):
            pass


async def memory_growth(work: Awaitable[None]) -> int:
    """Bytes that Python allocated while this ran and still holds."""
    gc.collect()
    tracemalloc.start()
    try:
        await work
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

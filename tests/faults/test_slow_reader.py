"""Callers that do not read: their events are joined meanwhile, after a limit they lose their stream, and nobody else waits for them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from tidegate.v1.chat_service_pb2 import ConverseRequest, ConverseResponse, Setup, StartTurn
from tidegate.v1.chat_service_pb2_grpc import ChatServiceStub
from tidegate.v1.turn_pb2 import TurnSpec

from router.model import TextDelta
from router.transport.outbox import FRAME_CHARS, Outbox
from tests.bench.calls import failure_of
from tests.bench.router import Router
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Wait, Worker

SMALL_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16_384))
"""Else the transport alone would take up all that these tests send."""

TURNS = 200
ANSWER = ["a" * 50] * 38
"""All answers together are several times what the transport takes up."""


@asynccontextmanager
async def open_stub(router: Router) -> AsyncIterator[Any]:
    """A stub whose connection buffers little."""
    async with grpc.aio.insecure_channel(router.target, options=SMALL_WINDOW) as channel:
        yield ChatServiceStub(channel)  # type: ignore[no-untyped-call]


def many_turns() -> list[ConverseRequest]:
    """A stream's messages: more turns than the buffers of the transport can hold the answers of."""
    spec = TurnSpec(messages=[ask()], max_output_tokens=1950)
    return [ConverseRequest(setup=Setup()), *(ConverseRequest(start=StartTurn(turn=turn, spec=spec)) for turn in range(1, TURNS + 1))]


async def test_events_of_a_paused_reader_are_joined(chatml: Path) -> None:
    """A caller that reads nothing until all its turns have ended gets each whole answer once, in a few large frames."""
    worker = Worker(chatml, ANSWER, max_sequences=TURNS)
    async with run_bench(chatml, worker) as router, open_stub(router) as stub:
        call = stub.Converse(iter(many_turns()))
        await until(lambda: worker.calls == TURNS and not worker.engine.has_work() and router.turns_in_lanes() == 0)
        frames = [frame async for frame in call]
    texts: defaultdict[int, str] = defaultdict(str)
    for event in (event for frame in frames for event in frame.events):
        texts[event.turn] += event.text_delta.text
    assert texts == {0: ""} | dict.fromkeys(range(1, TURNS + 1), "".join(ANSWER))
    assert len(frames) < len(ANSWER) * TURNS / 20


@pytest.mark.timeout(10)
def test_an_unread_answer_is_one_event() -> None:
    """However many pieces of text come while nobody reads, they wait as one event for each frame, and each piece costs the same."""
    outbox: Outbox[ConverseResponse] = Outbox(ConverseResponse, "id")
    for _ in range(200_000):
        outbox.put(1, [TextDelta("0123456789")])
    outbox.close()
    frames = []
    while (frame := asyncio.run(outbox.take())) is not None:
        frames.append(frame)
    assert len(frames) == 2_000_000 // FRAME_CHARS + 1
    assert {len(frame.events) for frame in frames} == {1}
    assert sum(len(frame.events[0].text_delta.text) for frame in frames) == 2_000_000


async def test_a_caller_that_never_reads_loses_its_stream(chatml: Path) -> None:
    """After the limit without reading its turns leave the engine, and behind what was sent it finds why; others keep their pace."""
    worker = Worker(
        chatml, lambda request: [*ANSWER, Wait(1000)] if request.max_new_tokens == 1950 else ["b"] * 500, max_sequences=2 * TURNS
    )
    limits = {"slow_reader_s": 1.0}
    async with run_bench(chatml, worker, timeouts=limits) as router, open_stub(router) as stub, router.client() as client:
        call = stub.Converse(iter(many_turns()))
        await until(lambda: worker.calls > TURNS / 2)
        async with client.session() as session:
            turn = await session.start(ask(), max_output_tokens=500)
            assert await turn.text() == "b" * 500
        await until(lambda: is_done(router, worker))
        error = await failure_of(call)
        assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "READER_TOO_SLOW")


def is_done(router: Router, worker: Worker) -> bool:
    """Whether no turn runs; the unread stream itself may still be open."""
    return worker.calls > 0 and router.turns_in_lanes() == 0 and not worker.engine.has_work()

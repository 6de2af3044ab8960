"""What Converse promises: the order of messages and events, and how turns share a stream."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tidegate import user
from tidegate.v1.chat_service_pb2 import ConverseRequest, Setup, StartTurn
from tidegate.v1.event_pb2 import FINISH_REASON_CANCELLED, FINISH_REASON_LENGTH, FINISH_REASON_STOP
from tidegate.v1.turn_pb2 import TurnSpec

from tests.bench.router import run_router
from tests.bench.waiting import until
from tests.bench.worker import Worker


async def test_a_turn_is_started_deltas_usage_finished(chatml: Path) -> None:
    """A turn's events come in the documented order, with rising sequence numbers, and joined deltas are the answer."""
    async with Worker(chatml, ["he", "llo"]).running() as worker, run_router(chatml, worker.address) as router:
        async with router.client() as client, client.session() as session:
            events = [event async for event in await session.start(user("hi"))]
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds[0] == "started"
    assert set(kinds[1:-2]) == {"text_delta"}
    assert kinds[-2:] == ["usage", "finished"]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert "".join(event.text_delta.text for event in events) == "hello"
    assert events[-2].usage.completion_tokens == 5
    assert events[-1].finished.finish_reason == FINISH_REASON_STOP


async def test_turns_interleave_without_mixing(chatml: Path) -> None:
    """Fifty turns on one stream each get their own text."""
    worker = Worker(chatml, lambda request: [f"{len(request.prompt)} "] * 20)
    async with worker.running(), run_router(chatml, worker.address) as router, router.client() as client, client.session() as session:
        turns = [await session.start(user("x" * length)) for length in range(50)]
        texts = await asyncio.gather(*(turn.text() for turn in turns))
    assert len(set(texts)) == 50
    for text in texts:
        assert len(set(text.split())) == 1


async def test_cancelling_one_turn_leaves_the_others(chatml: Path) -> None:
    """A cancelled turn finishes as cancelled and leaves the engine; its neighbour completes."""
    worker = Worker(chatml, lambda request: ["a"] * 2000, step_s=0.001)
    async with worker.running(), run_router(chatml, worker.address) as router, router.client() as client, client.session() as session:
        endless = await session.start(user("go"), max_output_tokens=2000)
        other = await session.start(user("go"), max_output_tokens=50)
        async for event in endless:
            if event.HasField("text_delta"):
                await endless.cancel()
        assert endless.finish_reason == FINISH_REASON_CANCELLED
        assert await other.text() == "a" * 50
        assert other.finish_reason == FINISH_REASON_LENGTH
        await until(lambda: worker.engine.cancelled == 1)


async def test_half_close_lets_running_turns_finish(chatml: Path) -> None:
    """After half-close the running turn completes and the stream ends with OK."""
    turns = (ConverseRequest(setup=Setup()), ConverseRequest(start=StartTurn(turn=1, spec=TurnSpec(messages=[user("go")]))))
    async with Worker(chatml, ["a"] * 20).running() as worker, run_router(chatml, worker.address) as router, router.stub() as stub:
        events = [event async for frame in stub.Converse(iter(turns)) for event in frame.events]
    assert "".join(event.text_delta.text for event in events) == "a" * 20
    assert events[-1].finished.finish_reason == FINISH_REASON_STOP


async def test_leaving_the_stream_cancels_its_turns(chatml: Path) -> None:
    """When the caller's stream goes, all its turns leave the engine."""
    worker = Worker(chatml, lambda request: ["a"] * 2000)
    async with worker.running(), run_router(chatml, worker.address) as router:
        async with router.client() as client, client.session() as session:
            _turns = [await session.start(user("go"), max_output_tokens=2000) for _ in range(5)]
            await until(lambda: worker.calls == 5)
        await until(lambda: worker.engine.cancelled == 5 and router.turns_in_lanes() == 0)

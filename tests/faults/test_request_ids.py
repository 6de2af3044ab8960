"""Ids that callers choose: harmless ones are used, others are replaced, and none tells two calls apart in a worker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from tidegate import TidegateError
from tidegate.v1.chat_service_pb2 import CompleteRequest, ConverseRequest, Setup
from tidegate.v1.turn_pb2 import TurnSpec

from tests.bench.calls import failure_of
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Worker

GOOD_IDS = ["a", "A-b_c.9", "x" * 64]
BAD_IDS = ["x" * 65, "x" * 7000, "a b", "id;drop", '{"level":"error"}', "%0aERROR", " ", "a/b", "\x7e~"]
BAD = CompleteRequest(spec=TurnSpec(messages=[ask()], stop=[""]))


async def test_a_harmless_request_id_is_kept(chatml: Path) -> None:
    """An id of letters, digits, dots, dashes and underscores, up to 64, comes back in errors and as the stream's id."""
    async with run_bench(chatml, wait_up=False) as router, router.stub() as stub:
        for given in GOOD_IDS:
            assert (await failure_of(stub.Complete(BAD, metadata=(("x-request-id", given),)))).request_id == given
            assert await stream_id(stub, given) == given


async def test_any_other_request_id_is_replaced(chatml: Path, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests) -> None:
    """An id that could forge a log line or a header is replaced by one of ours, and appears in no log record."""
    async with run_bench(chatml, wait_up=False) as router, router.stub() as stub:
        for given in BAD_IDS:
            with subtests.test(given):
                for replaced in (
                    (await failure_of(stub.Complete(BAD, metadata=(("x-request-id", given),)))).request_id,
                    await stream_id(stub, given),
                ):
                    assert len(replaced) == 32
                    assert replaced.isalnum()
                assert len(given.strip()) < 3 or given not in caplog.text


async def stream_id(stub: Any, given: str) -> str:
    """The id that a Converse stream is given when it asks for this one."""
    call = stub.Converse(iter((ConverseRequest(setup=Setup()),)), metadata=(("x-request-id", given),))
    events = [event async for frame in call for event in frame.events]
    return str(events[0].ready.stream_id)


async def test_a_failed_turn_tells_the_id_of_its_stream(chatml: Path) -> None:
    """The id in a turn's failure is the one that `ready` told."""
    async with run_bench(chatml, Worker(chatml)) as router, router.client() as client:
        async with client.session(headers={"x-request-id": "mine"}) as session:
            turn = await session.start(ask(), stop=[""])
            with pytest.raises(TidegateError) as caught:
                await turn.text()
    assert caught.value.request_id == "mine"


async def test_two_callers_may_choose_the_same_id(chatml: Path) -> None:
    """Two turns with the same request id and turn number each get their own answer, and a cancel of one leaves the other."""
    worker = Worker(chatml, lambda request: ["ab"[len(request.prompt) % 2]] * request.max_new_tokens)
    headers = {"x-request-id": "1"}
    async with run_bench(chatml, worker) as router, router.client(headers=headers) as one, router.client(headers=headers) as two:
        async with one.session() as first, two.session() as second:
            turns = [await first.start(ask("x"), max_output_tokens=500), await second.start(ask("xx"), max_output_tokens=50)]
            await turns[0].cancel()
            texts = await asyncio.gather(*(turn.text() for turn in turns))
    assert len(texts[1]) == 50
    assert len(set(texts[1])) == 1
    assert set(texts[0]).isdisjoint(texts[1])


async def test_odd_metadata_does_not_break_a_turn(chatml: Path) -> None:
    """Headers that the router knows or does not, with values of any kind, do not keep a turn from completing."""
    request = CompleteRequest(spec=TurnSpec(messages=[ask()]))
    async with run_bench(chatml, Worker(chatml)) as router, router.stub() as stub:
        for name in ("x-tenant", "x-tenant-bin", "traceparent", "tracestate"):
            odd = "Zoë\n".encode() if name.endswith("-bin") else 'Zo\\xeb "; = , %'
            metadata = grpc.aio.Metadata((name, odd), ("traceparent", f"00-{'1' * 32}-{'2' * 16}-01"))
            assert (await stub.Complete(request, metadata=metadata)).text == "ok"

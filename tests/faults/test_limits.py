"""Sizes and counts: what is too much is refused with the limit named, what fits is honoured exactly, and nobody else notices."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import grpc
import pytest
from tidegate import user
from tidegate.v1.chat_service_pb2 import CompleteRequest, ConverseRequest, CountTokensRequest, Setup, StartTurn
from tidegate.v1.event_pb2 import FINISH_REASON_LENGTH
from tidegate.v1.turn_pb2 import Message, Sampling, TurnSpec

from tests.bench.calls import failure_of
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Wait, Worker

GOOD = CompleteRequest(spec=TurnSpec(messages=[ask()]))
MEGABYTE = 1024 * 1024


async def test_stops_out_of_bounds_are_refused(chatml: Path) -> None:
    """An empty stop, too many or too long ones are the caller's fault, named by field, and reach no worker."""
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router, router.stub() as stub:
        for stop in ([""], ["ok", ""], ["x"] * 17, ["x" * 257], ["x"] * 10_000):
            error = await failure_of(stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask()], stop=stop))))
            assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
            assert list(error.fields) == [f"stop[{len(stop) - 1}]" if len(stop) < 3 else "stop"]
        assert worker.calls == 0


async def test_stops_within_bounds_are_taken(chatml: Path) -> None:
    """No stops, the most of them, and the longest are served."""
    async with run_bench(chatml, Worker(chatml)) as router, router.stub() as stub:
        for stop in ([], ["x"] * 16, ["x" * 256], ["€" * 256]):
            assert (await stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask()], stop=stop)))).text == "ok"


async def test_numbers_that_are_none_are_refused(chatml: Path, subtests: pytest.Subtests) -> None:
    """NaN and infinities are refused in every sampling field, in a turn and as a stream's default."""
    fields = ("temperature", "top_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router, router.stub() as stub:
        for field, value in product(fields, (math.nan, math.inf, -math.inf)):
            with subtests.test(field, value=value):
                sampling = Sampling(**{field: value})  # type: ignore[arg-type]
                turn = stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask()], sampling=sampling)))
                setup = stub.Converse(iter((ConverseRequest(setup=Setup(sampling=sampling)),)))
                assert [list((await failure_of(call)).fields) for call in (turn, setup)] == [[f"sampling.{field}"]] * 2
        assert worker.calls == 0


async def test_the_token_limit_is_honoured(chatml: Path) -> None:
    """An answer never has more tokens than were asked for, and an absurd limit is cut to what the model can hold."""
    async with run_bench(chatml, Worker(chatml, ["a"] * 60)) as router, router.client() as client, client.session() as session:
        for asked, made in ((1, 1), (8, 8), (50, 50), (2**32 - 1, 60)):
            turn = await session.start(ask(), max_output_tokens=asked)
            assert await turn.text() == "a" * made
            assert turn.started is not None
            assert turn.usage is not None
            assert turn.usage.completion_tokens == made
            assert turn.started.prompt_tokens + turn.started.max_output_tokens <= 2048
            whole = await client.stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask()], max_output_tokens=asked)))
            assert whole.usage.completion_tokens == made


async def test_without_a_limit_the_routers_default_holds(chatml: Path) -> None:
    """A turn without max_output_tokens gets the configured default."""
    async with run_bench(chatml, Worker(chatml, ["a"] * 60), model={"default_output_tokens": 7}) as router, router.stub() as stub:
        whole = await stub.Complete(GOOD)
        assert (whole.usage.completion_tokens, whole.finish_reason) == (7, FINISH_REASON_LENGTH)


@pytest.mark.parametrize("kv_blocks", [4, 2048])
async def test_a_prompt_that_leaves_no_room_never_reaches_the_engine(chatml: Path, kv_blocks: int) -> None:
    """The longest prompt that leaves room for one token is served; one token more is refused by the worker's own limits."""
    room = min(2048, kv_blocks * 32)
    worker = Worker(chatml, kv_blocks=kv_blocks)
    async with run_bench(chatml, worker) as router, router.stub() as stub:
        frame = (await stub.CountTokens(CountTokensRequest(messages=[user("")]))).prompt_tokens
        longest = [user("x" * (room - 1 - frame))]
        assert (await stub.Complete(CompleteRequest(spec=TurnSpec(messages=longest)))).usage.prompt_tokens == room - 1
        for messages in ([user("x" * (room - frame))], [user("x" * 3000)]):
            error = await failure_of(stub.Complete(CompleteRequest(spec=TurnSpec(messages=messages))))
            assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "PROMPT_TOO_LONG")
            assert f"maximum context length is {room} tokens" in error.message
        assert worker.calls == 1


async def test_a_thousand_wrong_fields_are_told_in_a_status_that_fits(chatml: Path) -> None:
    """The first of them, and how many more there are: a status that is longer than clients take would arrive as RESOURCE_EXHAUSTED."""
    spec = TurnSpec(messages=[Message(content="x")] * 1024)
    async with run_bench(chatml, Worker(chatml)) as router, router.stub() as stub:
        error = await failure_of(stub.Complete(CompleteRequest(spec=spec)))
        assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
        assert list(error.fields) == [f"messages[{at}].role" for at in range(16)]
        assert "1008 more" in error.message


async def test_too_many_messages_are_refused(chatml: Path) -> None:
    """A conversation of more messages than the limit is refused by count, not one violation for each."""
    async with run_bench(chatml, Worker(chatml)) as router, router.stub() as stub:
        error = await failure_of(stub.Complete(CompleteRequest(spec=TurnSpec(messages=[user("")] * 5_000))))
        assert list(error.fields) == ["messages"]
        assert "1024" in error.message


async def test_compressed_messages_are_refused(chatml: Path) -> None:
    """Of any size, before they are inflated; the connection goes on."""
    bomb = CompleteRequest(spec=TurnSpec(messages=[user("0" * 64 * MEGABYTE)]))
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router, router.stub() as stub:
        for request in (bomb, GOOD):
            error = await failure_of(stub.Complete(request, compression=grpc.Compression.Gzip))
            assert error.code == grpc.StatusCode.UNIMPLEMENTED
        assert worker.calls == 0
        assert (await stub.Complete(GOOD)).text == "ok"


async def test_turns_over_the_streams_limit_fail_and_the_rest_run(chatml: Path) -> None:
    """A stream that starts more turns than it may has the surplus failed, to be tried again later; the others complete."""
    worker = Worker(chatml, [Wait(0.1), "ok"])
    async with run_bench(chatml, worker, limits={"max_turns_per_stream": 3}) as router, router.stub() as stub:
        ends = await ends_of(stub, [ConverseRequest(start=StartTurn(turn=turn, spec=GOOD.spec)) for turn in range(1, 6)])
    assert ends == {1: "finished", 2: "finished", 3: "finished", 4: "failed", 5: "failed"}
    assert worker.calls == 3


async def ends_of(stub: Any, starts: Iterable[ConverseRequest]) -> dict[int, str]:
    """How each turn of a stream ended."""
    frames = stub.Converse(iter((ConverseRequest(setup=Setup()), *starts)))
    kinds = [(event.turn, event.WhichOneof("event")) async for frame in frames for event in frame.events]
    return {turn: kind for turn, kind in kinds if kind in ("finished", "failed")}


async def test_streams_over_the_routers_limit_are_refused(chatml: Path) -> None:
    """With all streams in use another call is refused as busy, and served when one has ended."""
    worker = Worker(chatml, lambda _: [Wait(1000)] if worker.calls <= 2 else ["ok"])
    async with run_bench(chatml, worker, limits={"max_streams": 2}) as router, router.stub() as stub:
        calls = [stub.Complete(GOOD), stub.Complete(GOOD)]
        await until(lambda: worker.calls == 2)
        assert (await failure_of(stub.Complete(GOOD))).code == grpc.StatusCode.RESOURCE_EXHAUSTED
        calls[0].cancel()
        await until(lambda: worker.engine.cancelled == 1)
        while await (call := stub.Complete(GOOD)).code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
            pass  # the call that was cancelled ends a moment after its generation
        assert (await call).text == "ok"
        calls[1].cancel()


async def test_bad_requests_do_not_disturb_good_ones(chatml: Path) -> None:
    """A caller that sends one bad request after the other changes nothing for a caller whose turn is running or comes after."""
    worker = Worker(chatml, ["a"] * 200)
    bad = CompleteRequest(spec=TurnSpec(messages=[ask("x" * 3000)], stop=[""]))
    async with run_bench(chatml, worker) as router, router.client() as client, client.session() as session, router.stub() as stub:
        turn = await session.start(ask(), max_output_tokens=200)
        for _ in range(20):
            assert (await failure_of(stub.Complete(bad))).code == grpc.StatusCode.INVALID_ARGUMENT
        assert await turn.text() == "a" * 200
        assert all(lane.up for lane in router.app.workers)
        assert worker.calls == 1

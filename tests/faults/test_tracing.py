"""Spans: each turn has one, under the parent that its caller named, that tells how the turn ended and nothing that was said in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode
from tidegate import Client, TidegateError
from tidegate.v1.chat_service_pb2 import CompleteRequest, StreamRequest
from tidegate.v1.turn_pb2 import TurnSpec

from tests.bench.calls import failure_of
from tests.bench.router import run_router
from tests.bench.tracing import SAMPLED, Spans, caller_trace
from tests.bench.waiting import until
from tests.bench.whole import CANARY, ask, run_bench
from tests.bench.worker import End, Finish, Item, Wait, Worker


def ending_of(span: ReadableSpan) -> tuple[StatusCode, object]:
    """A span's status and the kind of its error."""
    return span.status.status_code, (span.attributes or {}).get("error.type")


async def test_a_finished_turn_has_a_clean_span(chatml: Path) -> None:
    """A turn is one span under its caller's, with a child for each stage and the counts of its tokens."""
    async with run_bench(chatml, Worker(chatml)) as router, router.client(headers=SAMPLED) as client, client.session() as session:
        spans = Spans(router)
        await (await session.start(ask())).text()
        await until(lambda: len(spans.turns) == 1)
        (turn,) = spans.turns
        stages = [span for span in spans.all if span is not turn]
    assert turn.parent is not None
    assert f"{turn.parent.span_id:016x}" == "b" * 16
    assert ending_of(turn) == (StatusCode.UNSET, None)
    assert turn.attributes is not None
    assert turn.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert turn.attributes["gen_ai.usage.output_tokens"] == 2
    assert {span.name for span in stages} == {"tokenize", "queue", "generate"}
    assert all(span.parent == turn.context for span in stages)


@pytest.mark.parametrize(
    ("script", "kind"),
    [([End(Finish.FAILED, CANARY)], "ENGINE_FAILED"), ([Wait(1000)], "WORKER_STALLED"), ([End(Finish.CANCELLED)], "WORKER_LOST")],
)
async def test_a_failed_turns_span_tells_the_reason(chatml: Path, script: list[Item], kind: str) -> None:
    """A turn that failed has an error span with the reason that its caller was told."""
    limits = {"first_token_s": 0.2}
    async with run_bench(chatml, Worker(chatml, script), timeouts=limits) as router, router.client(headers=SAMPLED) as client:
        spans = Spans(router)
        async with client.session() as session:
            turn = await session.start(ask())
            with pytest.raises(TidegateError, match=kind):
                await turn.text()
        await until(lambda: len(spans.turns) == 1)
        assert ending_of(spans.turns[0]) == (StatusCode.ERROR, kind)


async def cancel_turn(client: Client, made: Callable[[], bool]) -> None:
    async with client.session() as session:
        turn = await session.start(ask(), max_output_tokens=2000)
        await until(made)
        await turn.cancel()
        await turn.text()


async def leave_stream(client: Client, made: Callable[[], bool]) -> None:
    async with client.session() as session:
        _turn = await session.start(ask(), max_output_tokens=2000)
        await until(made)


async def cancel_complete(client: Client, made: Callable[[], bool]) -> None:
    call = client.stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask()], max_output_tokens=2000)), metadata=tuple(SAMPLED.items()))
    await until(made)
    call.cancel()


async def cancel_unread_stream(client: Client, made: Callable[[], bool]) -> None:
    call = client.stub.Stream(StreamRequest(spec=TurnSpec(messages=[ask()], max_output_tokens=2000)), metadata=tuple(SAMPLED.items()))
    await until(made)
    call.cancel()


@pytest.mark.parametrize("leave", [cancel_turn, leave_stream, cancel_complete, cancel_unread_stream])
async def test_a_cancelled_turns_span_says_so(chatml: Path, leave: Callable[..., asyncio.Future[None]]) -> None:
    """However a caller leaves, read or unread, the turn's spans end within a second, and tell that it was cancelled."""
    worker = Worker(chatml, lambda _: ["a"] * 2000)
    async with run_bench(chatml, worker) as router, router.client(headers=SAMPLED) as client:
        spans = Spans(router)
        await leave(client, lambda: bool(worker.engine.made >= 3))
        await until(lambda: len(spans.turns) == 1, within_s=1.0)
        assert [span.name for span in spans.all] == ["tokenize", "queue", "generate", "chat test"]
        assert spans.turns[0].status.status_code != StatusCode.OK
        assert (spans.turns[0].attributes or {})["gen_ai.response.finish_reasons"] == ("cancelled",)


async def test_a_drained_turns_span_tells_the_reason(chatml: Path) -> None:
    """A turn that the router's stop ended has a span that says so, and does not pass for one that its caller cancelled."""
    async with Worker(chatml, lambda _: ["a"] * 2000).running() as worker:
        async with run_router(chatml, worker.address, timeouts={"drain_s": 0.1}) as router:
            spans = Spans(router)
            client = router.client()
            call = client.stub.Complete(
                CompleteRequest(spec=TurnSpec(messages=[ask()], max_output_tokens=2000)), metadata=tuple(SAMPLED.items())
            )
            await until(lambda: worker.calls == 1)
        assert (await failure_of(call)).reason == "DRAINING"
        await client.close()
    assert [ending_of(span) for span in spans.turns] == [(StatusCode.ERROR, "DRAINING")]


async def test_cancelled_turns_do_not_become_parents(chatml: Path) -> None:
    """After fifty cancelled turns each new one is under the span that its own caller named, and nothing was detached elsewhere."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens)
    async with run_bench(chatml, worker) as router, router.client() as client:
        spans = Spans(router)
        await asyncio.gather(*(drop_turn(client, number) for number in range(1, 51)))
        await asyncio.gather(*(finish_turn(client, number) for number in range(51, 101)))
        await until(lambda: len(spans.turns) == 100)
        parents = [(span.parent.trace_id, span.parent.span_id) for span in spans.turns if span.parent is not None]
    assert sorted(parents) == [(number, number) for number in range(1, 101)]


async def drop_turn(client: Client, number: int) -> None:
    async with client.session(headers=caller_trace(number)) as session:
        turn = await session.start(ask(), max_output_tokens=1500)
        async for _ in turn:
            break


async def finish_turn(client: Client, number: int) -> None:
    async with client.session(headers=caller_trace(number)) as session:
        await (await session.start(ask(), max_output_tokens=2)).text()


async def test_spans_hold_nothing_that_was_said(chatml: Path) -> None:
    """Neither prompts nor answers nor a worker's own words are in any span, whether the turn finished or failed."""
    scripts: list[list[Item]] = [[CANARY], [CANARY, End(Finish.FAILED, CANARY)], [End(Finish.REFUSED, CANARY.upper())]]
    worker = Worker(chatml, lambda _: scripts[worker.calls - 1])
    async with run_bench(chatml, worker) as router, router.client(headers=SAMPLED) as client, client.session() as session:
        spans = Spans(router)
        for _ in scripts:
            turn = await session.start(ask())
            try:
                await turn.text()
            except TidegateError as error:
                assert CANARY not in str(error).lower()
        await until(lambda: len(spans.turns) == len(scripts))
        assert CANARY not in "".join(span.to_json() for span in spans.all).lower()


async def test_an_unsampled_caller_makes_no_spans(chatml: Path) -> None:
    """A caller whose trace is not recorded, or who has none, costs no span."""
    async with run_bench(chatml, Worker(chatml)) as router:
        spans = Spans(router)
        for headers in ({}, {"traceparent": f"00-{'a' * 32}-{'b' * 16}-00"}, {"traceparent": "nonsense"}):
            async with router.client(headers=headers) as client, client.session() as session:
                assert await (await session.start(ask())).text() == "ok"
        assert not spans.all

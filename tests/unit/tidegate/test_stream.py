"""A stream's life: over several connections, to another router, and to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import use_span
from tidegate import Client, StreamLost, TidegateError
from tidegate.v1.chat_service_pb2 import ConverseResponse
from tidegate.v1.event_pb2 import Event, Ready

from tests.bench.waiting import until
from tests.unit.tidegate.scripted_router import (
    Rpc,
    ScriptedRouter,
    Side,
    connect,
    failed,
    finished,
    frame,
    go_away,
    ready,
    serve,
    started,
    status_of,
    text,
)

Frames = AsyncIterator[ConverseResponse]


async def answer(rpc: Rpc) -> Frames:
    """One turn, from setup to the caller's half-close."""
    await rpc.hear("setup")
    yield ready()
    turn = (await rpc.hear("start")).turn
    yield frame(2, started(turn), text("ok", turn), finished(turn))
    await rpc.hear_half_close()


async def break_after_text(rpc: Rpc) -> Frames:
    await rpc.hear("setup")
    yield ready()
    await rpc.hear("start")
    yield frame(2, started(), text("a"))
    await rpc.break_off()


async def break_before_anything(rpc: Rpc) -> Frames:
    await rpc.hear("setup")
    yield ready()
    await rpc.hear("start")
    await rpc.break_off()


async def test_what_arrives_twice_is_told_once() -> None:
    """A resumed stream names the last frame that arrived, and drops those that it has."""

    async def go_on(rpc: Rpc) -> Frames:
        resume = (await rpc.hear("setup")).resume
        assert (resume.stream_id, resume.after_sequence) == ("the stream", 2)
        yield ready(sequence=2)
        yield frame(2, started(), text("a"))
        yield frame(3, text("b"), finished())
        await rpc.hear_half_close()

    async with connect(ScriptedRouter(break_after_text, go_on)) as client:
        assert await client.chat("hi").text() == "ab"


async def test_a_start_of_which_nothing_was_heard_is_said_again() -> None:
    """It may have been lost; one that was answered is not."""

    async def hear_it(rpc: Rpc) -> Frames:
        await rpc.hear("setup")
        yield ready(sequence=1)
        assert (await rpc.hear("start")).turn == 1
        yield frame(2, started(), text("ok"), finished())

    async with connect(ScriptedRouter(break_before_anything, hear_it)) as client:
        assert await client.chat("hi").text() == "ok"


async def test_a_cancel_is_said_again() -> None:
    """Until the turn has ended."""

    async def lose_the_cancel(rpc: Rpc) -> Frames:
        await rpc.hear("setup")
        yield ready()
        await rpc.hear("start")
        yield frame(2, started())
        await rpc.hear("cancel")
        await rpc.break_off()

    async def hear_it(rpc: Rpc) -> Frames:
        await rpc.hear("setup")
        yield ready(sequence=2)
        assert (await rpc.hear("cancel")).turn == 1
        yield frame(3, finished())

    async with connect(ScriptedRouter(lose_the_cancel, hear_it)) as client:
        turn = client.chat("hi")
        async for event in turn:
            if event.HasField("started"):
                await turn.cancel()


async def test_a_stream_that_the_router_does_not_know_any_more_is_lost() -> None:
    """The turn says so, with what came before; nothing is tried again."""

    async def refuse(rpc: Rpc) -> Frames:
        await rpc.hear("setup")
        await rpc.fail(status_of(grpc.StatusCode.NOT_FOUND, "STREAM_UNKNOWN"))
        yield frame(0)

    async with connect(ScriptedRouter(break_after_text, refuse)) as client:
        turn = client.chat("hi")
        with pytest.raises(StreamLost, match="STREAM_UNKNOWN"):
            await turn.text()
        assert turn.started is not None


async def test_a_stream_that_cannot_be_resumed_is_lost_at_once() -> None:
    """The router says so in `ready`."""

    async def break_without_resume(rpc: Rpc) -> Frames:
        await rpc.hear("setup")
        yield ready(resume_for_s=0)
        await rpc.break_off()

    router = ScriptedRouter(break_without_resume)
    async with connect(router) as client:
        with pytest.raises(StreamLost, match="the connection to the router broke"):
            await client.chat("hi").text()
    assert len(router.rpcs) == 1


@pytest.mark.parametrize(("resume_for_s", "said"), [(5, ["leave"]), (0, [])])
async def test_a_stream_that_is_left_need_not_be_kept(resume_for_s: int, said: list[str]) -> None:
    """The router is told so, if it would keep it."""
    heard = []

    async def listen(rpc: Rpc) -> Frames:
        await rpc.hear("setup")
        yield ready(resume_for_s=resume_for_s)
        await rpc.hear("start")
        yield frame(2, started(), text("ok"), finished())
        heard.append(await rpc.hear_half_close())

    async with connect(ScriptedRouter(listen)) as client:
        assert await client.chat("hi").text() == "ok"
    assert heard == [said]


@pytest.mark.parametrize("reason", ["DRAINING", "RESUME_UNAVAILABLE"])
async def test_a_stream_is_looked_for_at_other_routers(reason: str) -> None:
    """Where one cannot take it, on a new connection each time; new turns stay on it when it was found."""

    async def refuse(rpc: Rpc) -> Frames:
        await rpc.hear("setup")
        await rpc.fail(status_of(grpc.StatusCode.UNAVAILABLE, reason, Duration(seconds=1)))
        yield frame(0)

    async def go_on(rpc: Rpc) -> Frames:
        assert (await rpc.hear("setup")).resume.stream_id == "the stream"
        yield ready(sequence=2)
        yield frame(3, text("b"), finished())
        assert (await rpc.hear("start")).turn == 2
        yield frame(4, started(2), text("c", 2), finished(2))
        await rpc.hear_half_close()

    router = ScriptedRouter(break_after_text, refuse, refuse, go_on)
    async with connect(router) as client, client.session() as session:
        assert [await (await session.start("hi")).text() for _ in range(2)] == ["ab", "c"]
    assert len({rpc.peer for rpc in router.rpcs[1:]}) == 3


async def test_a_stream_that_no_router_takes_is_lost() -> None:
    """When its time is over; the turn may run still, so it is not tried again."""

    async def break_soon(rpc: Rpc) -> Frames:
        await rpc.hear("setup")
        yield frame(1, Event(ready=Ready(stream_id="the stream", resume_for=Duration(nanos=200_000_000))))
        await rpc.hear("start")
        yield frame(2, started())
        await rpc.break_off()

    async def refuse(rpc: Rpc) -> Frames:
        await rpc.hear("setup")
        await rpc.fail(status_of(grpc.StatusCode.UNAVAILABLE, "DRAINING", Duration()))
        yield frame(0)

    async with connect(ScriptedRouter(break_soon, *[refuse] * 100)) as client:
        with pytest.raises(StreamLost, match="could not be taken up again: DRAINING") as lost:
            await client.chat("hi").text()
    assert lost.value.retry_after is None


@pytest.mark.parametrize("left", [True, False])
async def test_the_next_turn_after_go_away_is_on_another_connection(left: bool) -> None:
    """Of a session, and of a client; a running turn finishes where it is, whether its stream ends then or not."""

    async def go(rpc: Rpc) -> Frames:
        await rpc.hear("setup")
        yield ready()
        await rpc.hear("start")
        yield frame(2, go_away(), started(), text("first"))
        yield frame(3, finished())
        if not left:
            await rpc.hear_half_close()

    router = ScriptedRouter(go, answer, answer)
    async with connect(router) as client:
        async with client.session() as session:
            assert await (await session.start("hi")).text() == "first"
            assert session.going_away
            assert await (await session.start("hi")).text() == "ok"
            assert not session.going_away
        assert await client.chat("hi").text() == "ok"
    assert router.rpcs[0].peer != router.rpcs[1].peer == router.rpcs[2].peer


async def test_a_turn_that_a_going_router_refuses_is_tried_elsewhere() -> None:
    """After the time that it names, on another connection."""

    async def refuse(rpc: Rpc) -> Frames:
        await rpc.hear("setup")
        yield ready()
        await rpc.hear("start")
        yield frame(2, failed(status_of(grpc.StatusCode.UNAVAILABLE, "DRAINING", retry_after=Duration())))

    router = ScriptedRouter(refuse, answer)
    async with connect(router) as client:
        assert await client.chat("hi").text() == "ok"
    assert router.rpcs[0].peer != router.rpcs[1].peer


async def test_each_connection_says_who_calls_and_in_which_trace() -> None:
    """With a token that is valid now, the caller's span, and the caller's own headers."""
    tokens = iter("ab")
    router = ScriptedRouter(break_before_anything, answer)
    span = TracerProvider().get_tracer("test").start_span("caller")
    async with connect(router, token=lambda: next(tokens), headers={"x-team": "blue"}) as client:
        with use_span(span):
            turn = client.chat("hi", headers={"x-request-id": "mine"})
        assert await turn.text() == "ok"
    heads = [[rpc.metadata[name] for name in ("authorization", "x-team", "x-request-id")] for rpc in router.rpcs]
    assert heads == [["Bearer a", "blue", "mine"], ["Bearer b", "blue", "mine"]]
    assert f"{span.get_span_context().span_id:016x}" in router.rpcs[0].metadata["traceparent"]


async def test_a_caller_may_bring_its_trace_itself() -> None:
    """Headers that are given win over the current span."""
    router = ScriptedRouter(answer)
    async with connect(router) as client:
        with use_span(TracerProvider().get_tracer("test").start_span("caller")):
            await client.chat("hi", headers={"traceparent": "given"}).text()
    assert router.rpcs[0].metadata["traceparent"] == "given"


async def test_a_fault_of_the_token_function_is_the_turns() -> None:
    """The program sees its own exception."""

    def no_token() -> str:
        raise KeyError("no token today")

    async with connect(ScriptedRouter(), token=no_token) as client:
        with pytest.raises(KeyError, match="no token today"):
            await client.chat("hi").text()


async def test_a_turn_given_up_before_any_answer_is_cancelled_by_message() -> None:
    """A stream that may be resumed outlives its RPC: its end alone would leave the turn running."""
    heard: list[str] = []

    async def hear_all(rpc: Rpc) -> Frames:
        for kind in ("setup", "start", "cancel"):
            await rpc.hear(kind)
            heard.append(kind)
        await rpc.hear_half_close()
        heard.append("half-close")
        yield ready()

    async with connect(ScriptedRouter(hear_all)) as client:
        turn = client.chat("hi")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(turn.text(), 0.1)
        await until(lambda: heard == ["setup", "start", "cancel", "half-close"])


async def forever(rpc: Rpc) -> Frames:
    """A turn that ends when it is cancelled."""
    await rpc.hear("setup")
    yield ready()
    turn = (await rpc.hear("start")).turn
    yield frame(2, started(turn))
    await rpc.hear("cancel")
    yield frame(3, finished(turn))
    await rpc.hear_half_close()


class Seen:
    """Plays a side, and knows whether it came to its end."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self.whole = False

    async def __call__(self, rpc: Rpc) -> Frames:
        async for it in self._side(rpc):
            yield it
        self.whole = True


async def test_a_turn_that_is_dropped_warns_and_is_cancelled() -> None:
    """One that was started and neither iterated nor closed."""
    seen = Seen(forever)
    async with connect(ScriptedRouter(seen)) as client, client.session() as session:
        with pytest.warns(ResourceWarning, match="neither read to its end nor closed"):
            await session.start("hi")
        await asyncio.sleep(0.05)
    assert seen.whole


async def test_a_session_that_is_dropped_warns_and_ends() -> None:
    """One that was entered and not left."""

    async def idle(rpc: Rpc) -> Frames:
        await rpc.hear("setup")
        yield ready()
        await rpc.hear_half_close()

    seen = Seen(idle)
    async with connect(ScriptedRouter(seen)) as client:
        with pytest.warns(ResourceWarning, match="a session was not closed"):
            await client.session().__aenter__()
        await until(lambda: seen.whole)


async def test_a_client_that_is_dropped_warns() -> None:
    """Its connection stays open until then."""
    async with serve(ScriptedRouter(answer)) as address:
        client = Client(address)
        assert await client.chat("hi").text() == "ok"
        await asyncio.sleep(0.05)
        with pytest.warns(ResourceWarning, match="a client was not closed"):
            del client


async def test_half_an_answer_is_not_told_as_a_whole_one() -> None:
    """Of a turn that failed the text raises its error, of one that was left early that it was left."""

    async def fail(rpc: Rpc) -> Frames:
        await rpc.hear("setup")
        yield ready()
        await rpc.hear("start")
        yield frame(2, started(), text("half"), failed(status_of(grpc.StatusCode.INTERNAL, "ENGINE_FAILED")))
        await rpc.hear_half_close()

    async with connect(ScriptedRouter(fail, answer)) as client:
        broken, left = client.chat("hi"), client.chat("hi")
        for _ in range(2):
            with pytest.raises(TidegateError, match="ENGINE_FAILED"):
                await broken.text()
        async for _ in left:
            break
        await asyncio.sleep(0.01)
        with pytest.raises(RuntimeError, match="left before its end"):
            await left.text()


async def test_a_session_that_was_closed_starts_nothing() -> None:
    """Neither a new turn nor the next try of one that failed."""

    async def refuse(rpc: Rpc) -> Frames:
        await rpc.hear("setup")
        yield ready()
        await rpc.hear("start")
        yield frame(2, failed(status_of(grpc.StatusCode.UNAVAILABLE, "NO_WORKER", retry_after=Duration(nanos=100_000_000))))
        await rpc.hear_half_close()

    router = ScriptedRouter(refuse)
    async with connect(router) as client:
        async with client.session() as session:
            turn = await session.start("hi")
            waiting = asyncio.ensure_future(turn.text())
            await asyncio.sleep(0.05)
        for asking in (waiting, turn.text()):
            with pytest.raises(StreamLost, match="the session was closed"):
                await asking
        with pytest.raises(StreamLost, match="the session was closed"):
            await session.start("hi")
    assert len(router.rpcs) == 1


async def test_a_turn_is_iterated_once() -> None:
    """A second loop would find nothing; the text stays."""
    async with connect(ScriptedRouter(answer)) as client:
        turn = client.chat("hi")
        assert await turn.text() == "ok"
        assert await turn.text() == "ok"
        with pytest.raises(RuntimeError):
            await anext(aiter(turn))

"""Streams that are resumed at another router, through a real Redis: nothing is lost or told twice, and turns run once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import grpc
import pytest
from redis.asyncio import Redis
from tidegate import TidegateError, assistant, tool_result
from tidegate.v1.chat_service_pb2 import CancelTurn, ConverseRequest, Leave, ToolResult, ToolResults
from tidegate.v1.event_pb2 import FINISH_REASON_CANCELLED
from tidegate.v1.turn_pb2 import Tool, ToolCall, TurnSpec

from tests.bench.cutting import digest, digests, talk_through_cuts
from tests.bench.pair import pair, run_site
from tests.bench.proxy import Proxy
from tests.bench.resuming import ResumingCaller
from tests.bench.router import Router
from tests.bench.tenants import bearer, make_key
from tests.bench.waiting import until
from tests.bench.whole import ask, is_idle
from tests.bench.wires import GRPC, Face, ask_for_stream, dialling_grpc, end_of, on_both_faces, refusal_of
from tests.bench.worker import Item, Stall, Wait, Worker
from tests.unit.router.quota.redis_server import RedisServer

KEEP = {"longest_s": 5.0, "lease_s": 1.0}
ANSWER = [f"{at:04} {'é' * (at % 5)} " for at in range(180)]
PIECES = [f"{at:02} " for at in range(20)]
SPEC = TurnSpec(messages=[ask()], max_output_tokens=60)
CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
ENDLESS = TurnSpec(messages=[ask()], max_output_tokens=2000)


@on_both_faces
async def test_a_stream_moves_behind_every_frame(chatml: Path, face: Face) -> None:
    """After each frame its caller comes back to the other router: the text comes whole and once, from one run of the turn."""
    worker = Worker(chatml, [*PIECES, Stall(0.1), *PIECES], step_s=0.005)
    async with pair(chatml, worker, resume=KEEP) as (one, two, _), face.at(one) as first, face.at(two) as second:
        caller = ResumingCaller(5)
        await caller.connect(first)
        await caller.read_with_cuts(await caller.start(TurnSpec(messages=[ask()], max_output_tokens=120)), second, first)
        caller.cut()
        assert caller.texts[1] == "".join(PIECES) * 2
        assert worker.calls == 1
        assert caller.connections > 5
        await until(lambda: is_idle(one, worker) and is_idle(two))


@on_both_faces
@pytest.mark.slow
async def test_a_stream_survives_cuts_and_moves(chatml: Path, face: Face) -> None:
    """The wire is cut at a hundred random points, and each time the caller comes back to the other router."""
    worker = Worker(chatml, ANSWER, step_s=0.0)
    async with pair(chatml, worker, resume=KEEP) as (one, two, _):
        at_one, at_two = face.address_of(one), face.address_of(two)
        async with Proxy(at_one).running() as first, Proxy(at_two).running() as second:
            caller = await talk_through_cuts(face, [first, second], 100, TurnSpec(messages=[ask()], max_output_tokens=2040))
        await until(lambda: is_idle(one, worker) and is_idle(two))
        assert worker.calls == len(caller.starts)
    assert digests(caller) == {digest("".join(ANSWER))}


@on_both_faces
async def test_the_newest_attempt_has_the_stream_at_whatever_router(chatml: Path, face: Face) -> None:
    """Attempts arrive at two routers at once and in any order: each is refused or loses the stream again, but the newest."""
    worker = Worker(chatml, [*PIECES, Wait(1000)])
    async with pair(chatml, worker, resume=KEEP) as (one, two, _), face.at(one) as first, face.at(two) as second:
        caller, order = ResumingCaller(5), Random(11)
        await caller.connect(first)
        await caller.start(ENDLESS)
        while caller.texts[1] != "".join(PIECES):
            await caller.read()
        assert caller.ready is not None
        for newest in range(10, 100, 10):
            numbers = order.sample(range(newest - 8, newest + 1), 9)
            asked = [ask_for_stream(order.choice((first, second)), caller.ready.stream_id, caller.sequence, number) for number in numbers]
            wires = dict(zip(numbers, await asyncio.gather(*asked), strict=True))
            winner = wires.pop(newest)
            ends = await asyncio.gather(*map(refusal_of, wires.values()))
            assert set(ends) == {(grpc.StatusCode.ABORTED, "STREAM_TAKEN")}
            assert await winner.receive() is not None
        caller.cut()


@asynccontextmanager
async def away_from_home(worker: Worker, one: Router, two: Router, spec: TurnSpec) -> AsyncIterator[ResumingCaller]:
    """A caller whose turn runs at the first router, and who has come to the second."""
    caller = ResumingCaller(5)
    async with dialling_grpc(one.target) as dial:
        await caller.connect(dial)
        await caller.start(spec)
        while not caller.texts[1]:
            await caller.read()
    async with dialling_grpc(two.target) as dial:
        await caller.connect(dial)
        await caller.read()
        yield caller
        caller.cut()


@pytest.mark.slow
async def test_turns_stay_and_new_ones_start_where_the_caller_is(chatml: Path) -> None:
    """A cancel reaches the turn that stayed; it frees its engine, and its end is told as any other's."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens)
    async with pair(chatml, worker, resume=KEEP) as (one, two, _), away_from_home(worker, one, two, ENDLESS) as caller:
        new = await caller.start(TurnSpec(messages=[ask()], max_output_tokens=500))
        await until(lambda: two.turns_in_lanes() == 1)
        assert one.turns_in_lanes() == 1
        await caller.send(ConverseRequest(cancel=CancelTurn(turn=1)))
        await caller.read_until_ended(1)
        assert caller.ended[1].finished.finish_reason == FINISH_REASON_CANCELLED
        assert one.turns_in_lanes() == 0
        await caller.read_until_ended(new)
        assert caller.texts[new] == "a" * 500
        await caller.half_close()
        assert not await caller.read()


@pytest.mark.slow
async def test_a_caller_that_does_not_come_back_frees_both_routers(chatml: Path) -> None:
    """The turn that stayed is cancelled when its stream's time is over elsewhere, and Redis forgets the stream."""
    worker = Worker(chatml, ["a", Wait(1000)])
    async with pair(chatml, worker, resume={"longest_s": 0.3}) as (one, two, redis):
        async with away_from_home(worker, one, two, SPEC):
            pass
        await until(lambda: worker.engine.cancelled == 1)
        await until(lambda: is_idle(one, worker) and is_idle(two))
        await until_forgotten(redis)


async def until_forgotten(redis: RedisServer) -> None:
    """Redis holds nothing of any stream."""
    async with Redis.from_url(redis.url) as admin:

        async def is_empty() -> bool:
            return not [*await admin.keys("tidegate:stream:*"), *await admin.keys("tidegate:rest:*")]

        await until(is_empty)


async def test_streams_that_have_come_and_ended_make_room_too(chatml: Path) -> None:
    """As many as it takes: they were taken in beyond the bound on streams."""
    async with pair(chatml, Worker(chatml), resume={"max_streams": 1}) as (one, two, _), GRPC.at(one) as first, GRPC.at(two) as second:
        here, moved, new = (ResumingCaller(5) for _ in range(3))
        for caller, dial in ((here, second), (moved, first), (moved, second)):
            await caller.connect(dial)
            await caller.read()
            await caller.half_close()
            assert not await caller.read()
        await until(lambda: two.app.registry.get_sample_value("tidegate_detached_streams") == 2)
        await new.connect(second)
        await new.read()
        assert new.ready is not None
        assert new.ready.HasField("resume_for")
        new.cut()


@pytest.mark.parametrize("ended_at", ["home", "new home"])
async def test_a_turn_that_waits_for_results_does_not_move(chatml: Path, ended_at: str) -> None:
    """Its results fail in words that tell what to do, also if it called its tools when the stream had gone; and that works."""
    said: list[Item] = [CALL] if ended_at == "home" else ["a", Stall(0.3), CALL]
    worker = Worker(chatml, lambda _: said if worker.calls == 1 else ["It is so."])
    asked = TurnSpec(messages=[ask()], tools=[Tool(name="look")])
    async with pair(chatml, worker, resume=KEEP) as (one, two, _), GRPC.at(one) as first, GRPC.at(two) as second:
        caller = ResumingCaller(5)
        await caller.connect(first)
        turn = await caller.start(asked)
        while turn not in caller.ended if ended_at == "home" else not caller.texts[turn]:
            await caller.read()
        await caller.connect(second)
        await caller.read_until_ended(turn)
        (call,) = caller.calls
        await caller.send(ConverseRequest(tool_results=ToolResults(turn=turn, results=[ToolResult(call_id=call, content="seen")])))
        del caller.ended[turn]
        await caller.read_until_ended(turn)
        error = TidegateError(caller.ended[turn].failed.status)
        assert (error.code, error.reason, list(error.fields)) == (grpc.StatusCode.NOT_FOUND, "TURN_FORGOTTEN", ["tool_results.turn"])
        again = [*asked.messages, assistant("", [ToolCall(id=call, name="look", arguments_json="{}")]), tool_result(call, "seen")]
        new = await caller.start(TurnSpec(messages=again, tools=asked.tools))
        await caller.read_until_ended(new)
        assert caller.texts[new] == "It is so."
        caller.cut()


async def test_redis_forgets_a_stream_whose_caller_took_its_leave(chatml: Path) -> None:
    """At once, and no router finds it any more."""
    async with pair(chatml, Worker(chatml), resume=KEEP) as (one, two, redis), GRPC.at(one) as first, GRPC.at(two) as second:
        caller = ResumingCaller(5)
        await caller.connect(first)
        await caller.read_until_ended(await caller.start(SPEC))
        await caller.send(ConverseRequest(leave=Leave()))
        await until_forgotten(redis)
        await caller.connect(second)
        error = await end_of(caller.wire)
        assert error is not None
        assert error.reason == "STREAM_UNKNOWN"


@on_both_faces
@pytest.mark.slow
async def test_the_old_connection_ends_when_its_stream_moves(chatml: Path, face: Face) -> None:
    """The router that is left had not noticed that the caller was gone."""
    worker = Worker(chatml, lambda _: ["a"] * 2000)
    async with pair(chatml, worker, resume=KEEP) as (one, two, _), face.at(one) as first, face.at(two) as second:
        caller = ResumingCaller(5)
        await caller.connect(first)
        await caller.start(ENDLESS)
        while not caller.texts[1]:
            await caller.read()
        old = caller.wire
        await caller.connect(second)
        error = await end_of(old)
        assert error is not None
        assert (error.code, error.reason) == (grpc.StatusCode.ABORTED, "STREAM_TAKEN")
        while len(caller.texts[1]) < 200:
            await caller.read()
        await caller.send(ConverseRequest(cancel=CancelTurn(turn=1)))
        await caller.read_until_ended(1)
        caller.cut()


@on_both_faces
@pytest.mark.slow
async def test_a_router_that_stops_leaves_what_was_missed(chatml: Path, face: Face) -> None:
    """The caller is lost, the turn ends during the drain, the router goes: another one gives the whole answer."""
    worker, caller = Worker(chatml, PIECES, step_s=0.005), ResumingCaller(5)
    async with run_site(chatml, worker, resume=KEEP) as site, site.router("two") as two:
        async with site.router("one") as one, face.at(one) as dial:
            await caller.connect(dial)
            await caller.start(SPEC)
            while not caller.texts[1]:
                await caller.read()
            caller.cut()
        async with face.at(two) as dial:
            await caller.connect(dial)
            await caller.read_until_ended(1)
            caller.cut()
    assert caller.texts[1] == "".join(PIECES)


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_router_that_is_gone_leaves_what_it_logged(chatml: Path, end: signal.Signals) -> None:
    """What a caller missed comes from another router, whole turns whole; the turn that ran fails, and the stream takes new ones.

    A router that had only stopped finds that it has lost the stream, and frees the engine.
    """
    worker = Worker(chatml, lambda request: PIECES if request.max_new_tokens == 60 else ["a", Wait(1000)])
    caller = ResumingCaller(5)
    async with run_site(chatml, worker, resume=KEEP) as site, site.router("two") as two, site.process("one") as one:
        async with dialling_grpc(one.target) as dial:
            await caller.connect(dial)
            await caller.read()
            whole, cut = await caller.start(SPEC), await caller.start(ENDLESS)
            await until(lambda: worker.calls == 2)
            await asyncio.sleep(0.3)  # its log is behind
            one.send(end)
            async with dialling_grpc(two.target) as other:
                await caller.connect(other)
                await caller.read_until_ended(whole, cut)
                new = await caller.start(SPEC)
                await caller.read_until_ended(new)
                caller.cut()
        if end is signal.SIGSTOP:
            one.send(signal.SIGCONT)
        await until(lambda: worker.engine.cancelled == 1)
    assert caller.texts[whole] == caller.texts[new] == "".join(PIECES)
    assert "ROUTER_LOST" in str(caller.ended[cut].failed.status)
    assert caller.texts[cut]


@pytest.mark.slow
async def test_a_stream_survives_a_redis_that_forgets(chatml: Path) -> None:
    """It goes on at home as if nothing were, is written again, and can move then."""
    worker = Worker(chatml, ["a"] * 1000)
    async with pair(chatml, worker, resume=KEEP) as (one, two, redis), GRPC.at(one) as first, GRPC.at(two) as second:
        caller = ResumingCaller(5)
        await caller.connect(first)
        await caller.start(ENDLESS)
        while not caller.texts[1]:
            await caller.read()
        redis.restart()
        while len(caller.texts[1]) < 300:
            await caller.read()
        caller.cut()
        await until_known(redis)
        await caller.connect(second)
        await caller.read_until_ended(1)
        caller.cut()
    assert caller.texts[1] == "a" * 1000


async def until_known(redis: RedisServer) -> None:
    """Redis holds a stream."""
    async with Redis.from_url(redis.url) as admin:
        await until(lambda: admin.keys("tidegate:stream:*"))


@pytest.mark.slow
async def test_without_redis_a_stream_stays_at_home(chatml: Path) -> None:
    """There it is resumed as ever, and new ones are served; another router says that it cannot know."""
    worker = Worker(chatml, ["a"] * 1000)
    async with pair(chatml, worker, resume=KEEP, redis_away="share") as (one, two, redis), GRPC.at(one) as first, GRPC.at(two) as second:
        caller, stray = ResumingCaller(5), ResumingCaller(5)
        await caller.connect(first)
        await caller.start(ENDLESS)
        while not caller.texts[1]:
            await caller.read()
        redis.kill()
        caller.cut()
        stray.ready = caller.ready
        await stray.connect(second)
        error = await end_of(stray.wire)
        assert error is not None
        assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "RESUME_UNAVAILABLE")
        await caller.connect(first)
        await caller.read_until_ended(1)
        caller.cut()
        redis.start()
    assert caller.texts[1] == "a" * 1000


@pytest.mark.slow
async def test_nobody_else_has_a_stream_move(chatml: Path) -> None:
    """Another user that knows the id is told that there is no such stream, and it does not move."""
    async with pair(chatml, Worker(chatml), resume=KEEP) as (one, two, _), GRPC.at(one) as first, GRPC.at(two) as second:
        caller, thief = ResumingCaller(5), ResumingCaller(5)
        await caller.connect(first, bearer(await make_key(one, "acme", "ann")))
        await caller.read()
        thief.ready = caller.ready
        await thief.connect(second, bearer(await make_key(two, "globex", "ann")))
        error = await end_of(thief.wire)
        assert error is not None
        assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, "STREAM_UNKNOWN")
        await caller.read_until_ended(await caller.start(SPEC))
        assert caller.connections == 1
        caller.cut()

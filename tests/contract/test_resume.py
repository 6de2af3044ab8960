"""What resuming a stream promises: nothing is lost, nothing comes twice, and nobody else may."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from tidegate import TidegateError
from tidegate.v1.chat_service_pb2 import CancelTurn, ConverseRequest, Leave, Resume, Setup, StartTurn, ToolResult, ToolResults
from tidegate.v1.event_pb2 import FINISH_REASON_CANCELLED, FINISH_REASON_LENGTH
from tidegate.v1.turn_pb2 import Tool, TurnSpec

from router.transport.outbox import seconds
from tests.bench.resuming import ResumingCaller, end_of
from tests.bench.tenants import bearer, make_key
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Stall, Wait, Worker

KEEP = {"resume": {"longest_s": 0.5}}
PIECES = [f"{at:02} " for at in range(20)]
GO = '<tool_call>\n{"name": "go", "arguments": {}}\n</tool_call>'
SPEC = TurnSpec(messages=[ask()], max_output_tokens=60)
ENDLESS = TurnSpec(messages=[ask()], max_output_tokens=2000)
LEAVE = ConverseRequest(leave=Leave())


async def refusal_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """What a connection ends with."""
    error = await end_of(call)
    assert error is not None
    return error.code, error.reason


async def test_a_stream_tells_whether_it_can_be_resumed(chatml: Path) -> None:
    """The time in force is what was asked for, at most the router's; a stream that asks for none has none, and no secret in its id."""
    granted = []
    async with run_bench(chatml, wait_up=False, **KEEP) as router, router.stub() as stub:
        for setup in (Setup(), Setup(resume_for=seconds(0.2)), Setup(resume_for=seconds(9)), Setup(resume_for=seconds(-1))):
            call = stub.Converse(iter((ConverseRequest(setup=setup),)), metadata=(("x-request-id", "mine"),))
            ready = (await call.read()).events[0].ready
            granted.append((ready.HasField("resume_for"), ready.resume_for.ToMilliseconds(), ready.stream_id == "mine"))
            assert ready.stream_id.startswith("mine")
            assert await call.read() is grpc.aio.EOF
    assert granted == [(False, 0, True), (True, 200, False), (True, 500, False), (False, 0, True)]


async def test_frames_are_numbered(chatml: Path) -> None:
    """From 1, by one, on streams that cannot be resumed too."""
    async with run_bench(chatml, Worker(chatml, PIECES)) as router, router.stub() as stub:
        messages = [ConverseRequest(setup=Setup()), ConverseRequest(start=StartTurn(turn=1, spec=SPEC))]
        sequences = [frame.sequence async for frame in stub.Converse(iter(messages))]
    assert sequences == list(range(1, len(sequences) + 1))


async def test_a_stream_is_resumed_behind_every_frame(chatml: Path) -> None:
    """The connection is cut after each single frame of an answer: the text comes whole and once, under numbers that go on."""
    async with run_bench(chatml, Worker(chatml, PIECES), **KEEP) as router, router.stub() as stub:
        caller = ResumingCaller(5)
        await caller.connect(stub)
        await caller.start(SPEC)
        while 1 not in caller.ended:
            last = caller.sequence
            while caller.sequence == last:
                await caller.read()
            if 1 not in caller.ended:
                caller.cut()
                await caller.connect(stub)
        caller.cut()
        assert caller.texts[1] == "".join(PIECES)
        assert caller.connections > 5
        sample = router.app.registry.get_sample_value
        assert sample("tidegate_resumed_streams_total") == caller.connections - 1


async def test_what_was_sent_is_sent_again_from_any_frame(chatml: Path) -> None:
    """A caller that has read everything may go back to any frame it names, until it has named a later one."""
    async with run_bench(chatml, Worker(chatml, PIECES), **KEEP) as router, router.stub() as stub:
        caller = ResumingCaller(5)
        await caller.connect(stub)
        await caller.start(SPEC)
        await caller.read_until_ended(1)
        caller.cut()
        frames = caller.sequence
        assert caller.ready is not None
        for arrived in range(frames + 1):
            call = stub.Converse(
                iter((ConverseRequest(setup=Setup(resume=Resume(stream_id=caller.ready.stream_id, after_sequence=arrived))),))
            )
            assert [frame.sequence async for frame in call] == [arrived, *range(arrived + 1, frames + 1)]
        call = stub.Converse(iter((ConverseRequest(setup=Setup(resume=Resume(stream_id=caller.ready.stream_id))),)))
        assert await refusal_of(call) == (grpc.StatusCode.OUT_OF_RANGE, "RESUME_GAP")


async def test_a_turn_goes_on_without_its_caller(chatml: Path) -> None:
    """What a turn says meanwhile is there when its caller comes back, in few frames."""
    worker = Worker(chatml, ["a"] * 500, step_s=0.001)
    async with run_bench(chatml, worker, resume={"longest_s": 5.0}) as router, router.stub() as stub:
        caller = ResumingCaller(5)
        await caller.connect(stub)
        await caller.start(ENDLESS)
        while not caller.texts[1]:
            await caller.read()
        caller.cut()
        await until(lambda: router.turns_in_lanes() == 0 and not worker.engine.has_work())
        await caller.connect(stub)
        before = caller.sequence
        await caller.read_until_ended(1)
        assert caller.texts[1] == "a" * 500
        assert caller.sequence - before < 50
        caller.cut()
        await until(lambda: router.app.registry.get_sample_value("tidegate_detached_streams") == 1)


async def test_new_turns_run_on_a_resumed_stream(chatml: Path) -> None:
    """Numbers of turns go on too; a start that is sent again is ignored if it had arrived, and a turn can be cancelled."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens)
    async with run_bench(chatml, worker, **KEEP) as router, router.stub() as stub:
        caller = ResumingCaller(5)
        await caller.connect(stub)
        await caller.read()
        first = await caller.start(ENDLESS)
        await until(lambda: worker.calls == 1)
        caller.cut()
        await caller.connect(stub)
        second = await caller.start(SPEC)
        await caller.read_until_ended(second)
        await caller.send(ConverseRequest(cancel=CancelTurn(turn=first)))
        await caller.read_until_ended(first)
        await caller.half_close()
        assert not await caller.read()
    assert worker.calls == 2
    reasons = [caller.ended[turn].finished.finish_reason for turn in (first, second)]
    assert reasons == [FINISH_REASON_CANCELLED, FINISH_REASON_LENGTH]


async def test_an_idle_stream_that_was_lost_takes_turns_again(chatml: Path) -> None:
    """A lost connection of a stream on which nothing ran may look half-closed to the router."""
    async with run_bench(chatml, Worker(chatml), **KEEP) as router, router.stub() as stub:
        caller = ResumingCaller(5)
        for _ in range(3):
            await caller.connect(stub)
            await caller.read()
            await caller.half_close()
            assert not await caller.read()
        await caller.connect(stub)
        await caller.read_until_ended(await caller.start(SPEC))
        assert caller.texts[1] == "ok"
        caller.cut()


async def test_a_stream_that_is_not_resumed_ends(chatml: Path) -> None:
    """When the time is over its turns leave the engine, and nothing is known of it any more."""
    worker = Worker(chatml, [Wait(1000)])
    async with run_bench(chatml, worker, **KEEP) as router, router.stub() as stub:
        caller = ResumingCaller(0.2)
        await caller.connect(stub)
        await caller.start(SPEC)
        await until(lambda: worker.calls == 1)
        await caller.read()
        caller.cut()
        await until(lambda: worker.engine.cancelled == 1)
        await until(lambda: router.app.registry.get_sample_value("tidegate_detached_streams") == 0)
        await caller.connect(stub)
        assert await refusal_of(caller.call) == (grpc.StatusCode.NOT_FOUND, "STREAM_UNKNOWN")


async def test_the_newest_connection_has_the_stream(chatml: Path) -> None:
    """A caller need not wait until the router has found its old connection dead; that one ends and takes nothing more."""
    worker = Worker(chatml, [*PIECES, Stall(0.3), *PIECES])
    async with run_bench(chatml, worker, **KEEP) as router, router.stub() as stub, router.stub() as other:
        caller = ResumingCaller(5)
        await caller.connect(stub)
        old = caller.call
        await caller.start(TurnSpec(messages=[ask()], max_output_tokens=120))
        while not caller.texts[1]:
            await caller.read()
        await caller.connect(other)
        assert await refusal_of(old) == (grpc.StatusCode.ABORTED, "STREAM_TAKEN")
        await caller.read_until_ended(1)
        assert caller.texts[1] == "".join(PIECES) * 2
        caller.cut()


async def test_nobody_else_resumes_a_stream(chatml: Path) -> None:
    """Another user that knows the id hears what it would of an unknown one, and the stream goes on; another key of the same user may."""
    worker = Worker(chatml, lambda _: ["a"] * 2000)
    async with run_bench(chatml, worker, **KEEP) as router, router.stub() as stub:
        caller, thief = ResumingCaller(5), ResumingCaller(5)
        await caller.connect(stub, metadata=bearer(await make_key(router, "acme", "ann")))
        await caller.start(ENDLESS)
        await caller.read()
        thief.ready = caller.ready
        for tenant, user in (("acme", "bob"), ("globex", "ann")):
            await thief.connect(stub, metadata=bearer(await make_key(router, tenant, user)))
            assert await refusal_of(thief.call) == (grpc.StatusCode.NOT_FOUND, "STREAM_UNKNOWN")
        while len(caller.texts[1]) < 100:
            await caller.read()
        caller.cut()
        await caller.connect(stub, metadata=bearer(await make_key(router, "acme", "ann")))
        while len(caller.texts[1]) < 200:
            await caller.read()
        caller.cut()


async def test_an_unknown_stream_is_not_found(chatml: Path) -> None:
    """Whatever the id is."""
    async with run_bench(chatml, wait_up=False) as router, router.stub() as stub:
        for stream_id in ("", "x" * 10_000, "{a}:*"):
            call = stub.Converse(iter((ConverseRequest(setup=Setup(resume=Resume(stream_id=stream_id))),)))
            assert await refusal_of(call) == (grpc.StatusCode.NOT_FOUND, "STREAM_UNKNOWN")


async def test_a_fault_of_the_caller_ends_the_stream_for_good(chatml: Path) -> None:
    """A second setup cancels the turns at once, though they would have outlived the connection."""
    worker = Worker(chatml, [Wait(1000)])
    async with run_bench(chatml, worker, resume={"longest_s": 60.0}) as router, router.stub() as stub:
        caller = ResumingCaller(60)
        await caller.connect(stub)
        await caller.start(SPEC)
        await until(lambda: worker.calls == 1)
        await caller.send(ConverseRequest(setup=Setup()))
        with pytest.raises(TidegateError, match="SETUP_REPEATED"):
            await caller.read_until_ended(1)
        await until(lambda: worker.engine.cancelled == 1)
        await caller.connect(stub)
        assert await refusal_of(caller.call) == (grpc.StatusCode.NOT_FOUND, "STREAM_UNKNOWN")


async def test_a_stream_may_be_resumed_while_its_router_drains(chatml: Path) -> None:
    """Its turns have the same time as others, and a caller that was lost may come for the rest, of these streams only."""
    worker = Worker(chatml, [*PIECES, Stall(0.3), *PIECES])
    async with run_bench(chatml, worker, resume={"longest_s": 5.0}) as router, router.stub() as stub:
        caller, late = ResumingCaller(5), ResumingCaller(5)
        await caller.connect(stub)
        await caller.start(TurnSpec(messages=[ask()], max_output_tokens=120))
        while not caller.texts[1]:
            await caller.read()
        caller.cut()
        await until(lambda: router.app.registry.get_sample_value("tidegate_detached_streams") == 1)
        drain = asyncio.create_task(router.app.streams.drain(5.0))
        await asyncio.sleep(0.01)
        await late.connect(stub)
        assert await refusal_of(late.call) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        await caller.connect(stub)
        await caller.read_until_ended(1)
        assert not await caller.read()
        await drain
    assert caller.texts[1] == "".join(PIECES) * 2


async def test_a_router_that_stops_ends_streams_that_wait(chatml: Path) -> None:
    """Turns that run over the time leave the engine when it is over, and streams without turns take none of it."""
    worker = Worker(chatml, [Wait(1000)])
    async with run_bench(chatml, worker) as router, router.stub() as stub:
        busy, idle = ResumingCaller(60), ResumingCaller(60)
        for caller in (busy, idle):
            await caller.connect(stub)
            await caller.read()
        turn = await busy.start(SPEC)
        await until(lambda: worker.calls == turn)
        for caller in (busy, idle):
            caller.cut()
        await until(lambda: router.app.registry.get_sample_value("tidegate_detached_streams") == 2)
        drain = asyncio.create_task(router.app.streams.drain(0.3))
        await until(lambda: router.app.registry.get_sample_value("tidegate_detached_streams") == 1)
        assert worker.engine.cancelled == 0
        await drain
        assert router.app.registry.get_sample_value("tidegate_detached_streams") == 0
        await until(lambda: worker.engine.cancelled == 1)


async def test_too_many_streams_to_keep_are_served_without(chatml: Path) -> None:
    """Beyond the router's limit a stream works and says that it cannot be resumed. One that has ended well makes room."""
    async with run_bench(chatml, Worker(chatml), resume={"max_streams": 1}) as router, router.stub() as stub:
        callers = [ResumingCaller(5) for _ in range(3)]
        for caller in callers[:2]:
            await caller.connect(stub)
            await caller.read_until_ended(await caller.start(SPEC))
        for caller in callers[:2]:
            await caller.half_close()
            assert not await caller.read()
        await callers[2].connect(stub)
        await callers[2].read()
        assert [caller.ready is not None and caller.ready.HasField("resume_for") for caller in callers] == [True, False, True]
        await callers[0].connect(stub)
        assert await refusal_of(callers[0].call) == (grpc.StatusCode.NOT_FOUND, "STREAM_UNKNOWN")
        callers[2].cut()


async def test_last_frames_that_were_not_taken_are_kept(chatml: Path) -> None:
    """A stream that ended while its caller did not read has not ended well: it makes no room for others."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens, step_s=0.0)
    async with run_bench(chatml, worker, resume={"max_streams": 1}) as router, router.stub() as stub:
        caller, other = ResumingCaller(5), ResumingCaller(5)
        await caller.connect(stub)
        turns = [await caller.start(TurnSpec(messages=[ask()], max_output_tokens=2000, logprobs=True)) for _ in range(8)]
        await caller.half_close()
        await until(lambda: worker.calls == len(turns) and not router.turns_in_lanes())
        caller.cut()
        await until(lambda: router.app.registry.get_sample_value("tidegate_detached_streams") == 1)
        await other.connect(stub)
        await other.read()
        assert other.ready is not None
        assert not other.ready.HasField("resume_for")
        await caller.connect(stub)
        await caller.read_until_ended(*turns)
        assert {caller.texts[turn] for turn in turns} == {"a" * 2000}
        for left in (caller, other):
            left.cut()


async def test_a_caller_that_takes_its_leave_has_nothing_kept(chatml: Path) -> None:
    """Its stream is gone when it ends, and makes room at once. Whoever never was to come back may say so too."""
    async with run_bench(chatml, Worker(chatml), resume={"max_streams": 1}) as router, router.stub() as stub:
        for resume_for_s, kept in ((60, True), (60, True), (0, False)):
            caller = ResumingCaller(resume_for_s)
            await caller.connect(stub)
            await caller.read_until_ended(await caller.start(SPEC))
            assert caller.ready is not None
            assert caller.ready.HasField("resume_for") is kept
            await caller.send(LEAVE)
            await caller.read_until_ended(await caller.start(SPEC))
            await caller.half_close()
            assert not await caller.read()
            assert router.app.registry.get_sample_value("tidegate_detached_streams") == 0
            await caller.connect(stub)
            assert await refusal_of(caller.call) == (grpc.StatusCode.NOT_FOUND, "STREAM_UNKNOWN")


async def test_turns_of_a_caller_that_took_its_leave_end_with_its_connection(chatml: Path) -> None:
    """As if the stream had been set up without time to come back."""
    worker = Worker(chatml, lambda _: [Wait(1000)] if worker.calls == 1 else ["ok"])
    async with run_bench(chatml, worker, resume={"longest_s": 60.0}) as router, router.stub() as stub:
        caller = ResumingCaller(60)
        await caller.connect(stub)
        await caller.start(SPEC)
        await until(lambda: worker.calls == 1)
        await caller.send(LEAVE)
        await caller.read_until_ended(await caller.start(SPEC))
        caller.cut()
        await until(lambda: worker.engine.cancelled == 1)


async def test_results_that_had_arrived_are_ignored(chatml: Path) -> None:
    """A caller that has heard nothing since it gave a tool's results gives them again; the turn runs once."""
    worker = Worker(chatml, lambda _: [GO] if worker.calls == 1 else ["ok"], step_s=0.01)
    async with run_bench(chatml, worker, **KEEP) as router, router.stub() as stub:
        caller = ResumingCaller(5)
        await caller.connect(stub)
        turn = await caller.start(TurnSpec(messages=[ask()], tools=[Tool(name="go")]))
        await caller.read_until_ended(turn)
        (call,) = caller.calls
        results = ConverseRequest(tool_results=ToolResults(turn=turn, results=[ToolResult(call_id=call, content="gone")]))
        await caller.send(results)
        await until(lambda: worker.calls == 2)
        caller.cut()
        del caller.ended[turn]
        await caller.connect(stub)
        await caller.send(results)
        await caller.read_until_ended(turn)
        await caller.send(results)
        await caller.half_close()
        assert not await caller.read()
    assert worker.calls == 2
    assert caller.texts[turn] == "ok"

"""Whose streams are resumed, and for how long; what is told to whoever comes too late or is somebody else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from tidegate import TidegateError
from tidegate.v1.chat_service_pb2 import ConverseRequest, Leave, Setup
from tidegate.v1.turn_pb2 import TurnSpec

from tests.bench.resuming import ResumingCaller
from tests.bench.tenants import bearer, make_key
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.wires import GRPC, Face, ask_for_stream, dialling_grpc, on_both_faces, refusal_of
from tests.bench.worker import Stall, Wait, Worker

KEEP: dict[str, Any] = {"resume": {"longest_s": 0.5}}
PIECES = [f"{at:02} " for at in range(20)]
SPEC = TurnSpec(messages=[ask()], max_output_tokens=60)
ENDLESS = TurnSpec(messages=[ask()], max_output_tokens=2000)
LEAVE = ConverseRequest(leave=Leave())


@on_both_faces
async def test_a_stream_that_is_not_resumed_ends(chatml: Path, face: Face) -> None:
    """When the time is over its turns leave the engine, and nothing is known of it any more."""
    worker = Worker(chatml, [Wait(1000)])
    async with run_bench(chatml, worker, **KEEP) as router, face.at(router) as dial:
        caller = ResumingCaller(0.2)
        await caller.connect(dial)
        await caller.start(SPEC)
        await until(lambda: worker.calls == 1)
        await caller.read()
        caller.cut()
        await until(lambda: worker.engine.cancelled == 1)
        await until(lambda: router.app.registry.get_sample_value("tidegate_detached_streams") == 0)
        await caller.connect(dial)
        assert await refusal_of(caller.wire) == (grpc.StatusCode.NOT_FOUND, "STREAM_UNKNOWN")


@on_both_faces
async def test_the_newest_connection_has_the_stream(chatml: Path, face: Face) -> None:
    """A caller need not wait until the router has found its old connection dead; that one ends and takes nothing more."""
    worker = Worker(chatml, [*PIECES, Stall(0.3), *PIECES])
    async with run_bench(chatml, worker, **KEEP) as router, face.at(router) as dial, face.at(router) as other:
        caller = ResumingCaller(5)
        await caller.connect(dial)
        old = caller.wire
        await caller.start(TurnSpec(messages=[ask()], max_output_tokens=120))
        while not caller.texts[1]:
            await caller.read()
        await caller.connect(other)
        assert await refusal_of(old) == (grpc.StatusCode.ABORTED, "STREAM_TAKEN")
        await caller.read_until_ended(1)
        assert caller.texts[1] == "".join(PIECES) * 2
        caller.cut()


@on_both_faces
async def test_an_older_attempt_that_arrives_late_does_not_have_the_stream(chatml: Path, face: Face) -> None:
    """The newer one keeps it, and one without a number has it as the latest to arrive."""
    worker = Worker(chatml, lambda _: ["a"] * 2000)
    async with run_bench(chatml, worker, **KEEP) as router, face.at(router) as dial:
        caller = ResumingCaller(5)
        await caller.connect(dial)
        await caller.start(ENDLESS)
        await caller.read()
        await caller.connect(dial)
        while len(caller.texts[1]) < 100:
            await caller.read()
        assert caller.ready is not None
        stream_id, arrived = caller.ready.stream_id, caller.sequence
        for late in (1, caller.connections - 1):
            wire = await ask_for_stream(dial, stream_id, arrived, late)
            assert await refusal_of(wire) == (grpc.StatusCode.ABORTED, "STREAM_TAKEN")
        while len(caller.texts[1]) < 200:
            await caller.read()
        unnumbered = await ask_for_stream(dial, stream_id, caller.sequence)
        assert await refusal_of(caller.wire) == (grpc.StatusCode.ABORTED, "STREAM_TAKEN")
        assert await unnumbered.receive() is not None
        unnumbered.cut()


@on_both_faces
async def test_nobody_else_resumes_a_stream(chatml: Path, face: Face) -> None:
    """Another user that knows the id hears what it would of an unknown one, and the stream goes on; another key of the same user may."""
    worker = Worker(chatml, lambda _: ["a"] * 2000)
    async with run_bench(chatml, worker, **KEEP) as router, face.at(router) as dial:
        caller, thief = ResumingCaller(5), ResumingCaller(5)
        await caller.connect(dial, bearer(await make_key(router, "acme", "ann")))
        await caller.start(ENDLESS)
        await caller.read()
        thief.ready = caller.ready
        for tenant, user in (("acme", "bob"), ("globex", "ann")):
            await thief.connect(dial, bearer(await make_key(router, tenant, user)))
            assert await refusal_of(thief.wire) == (grpc.StatusCode.NOT_FOUND, "STREAM_UNKNOWN")
        while len(caller.texts[1]) < 100:
            await caller.read()
        caller.cut()
        await caller.connect(dial, bearer(await make_key(router, "acme", "ann")))
        while len(caller.texts[1]) < 200:
            await caller.read()
        caller.cut()


@on_both_faces
async def test_an_unknown_stream_is_not_found(chatml: Path, face: Face) -> None:
    """Whatever the id is."""
    async with run_bench(chatml, wait_up=False) as router, face.at(router) as dial:
        for stream_id in ("", "x" * 10_000, "{a}:*"):
            assert await refusal_of(await ask_for_stream(dial, stream_id, 0)) == (grpc.StatusCode.NOT_FOUND, "STREAM_UNKNOWN")


@on_both_faces
async def test_a_fault_of_the_caller_ends_the_stream_for_good(chatml: Path, face: Face) -> None:
    """A second setup cancels the turns at once, though they would have outlived the connection."""
    worker = Worker(chatml, [Wait(1000)])
    async with run_bench(chatml, worker, resume={"longest_s": 60.0}) as router, face.at(router) as dial:
        caller = ResumingCaller(60)
        await caller.connect(dial)
        await caller.start(SPEC)
        await until(lambda: worker.calls == 1)
        await caller.send(ConverseRequest(setup=Setup()))
        with pytest.raises(TidegateError, match="SETUP_REPEATED"):
            await caller.read_until_ended(1)
        await until(lambda: worker.engine.cancelled == 1)
        await caller.connect(dial)
        assert await refusal_of(caller.wire) == (grpc.StatusCode.NOT_FOUND, "STREAM_UNKNOWN")


@on_both_faces
async def test_a_stream_may_be_resumed_while_its_router_drains(chatml: Path, face: Face) -> None:
    """Its turns have the same time as others, and a caller that was lost may come for the rest, of these streams only."""
    worker = Worker(chatml, [*PIECES, Stall(0.3), *PIECES])
    async with run_bench(chatml, worker, resume={"longest_s": 5.0}) as router, face.at(router) as dial:
        caller, late = ResumingCaller(5), ResumingCaller(5)
        await caller.connect(dial)
        await caller.start(TurnSpec(messages=[ask()], max_output_tokens=120))
        while not caller.texts[1]:
            await caller.read()
        caller.cut()
        await until(lambda: router.app.registry.get_sample_value("tidegate_detached_streams") == 1)
        drain = asyncio.create_task(router.app.streams.drain(5.0))
        await asyncio.sleep(0.01)
        await late.connect(dial)
        assert await refusal_of(late.wire) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        await caller.connect(dial)
        await caller.read_until_ended(1)
        assert not await caller.read()
        await drain
    assert caller.texts[1] == "".join(PIECES) * 2


@on_both_faces
async def test_a_router_that_stops_ends_streams_that_wait(chatml: Path, face: Face) -> None:
    """Turns that run over the time leave the engine when it is over, and streams without turns take none of it."""
    worker = Worker(chatml, [Wait(1000)])
    async with run_bench(chatml, worker) as router, face.at(router) as dial:
        busy, idle = ResumingCaller(60), ResumingCaller(60)
        for caller in (busy, idle):
            await caller.connect(dial)
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
    async with run_bench(chatml, Worker(chatml), resume={"max_streams": 1}) as router, GRPC.at(router) as dial:
        callers = [ResumingCaller(5) for _ in range(3)]
        for caller in callers[:2]:
            await caller.connect(dial)
            await caller.read_until_ended(await caller.start(SPEC))
        for caller in callers[:2]:
            await caller.half_close()
            assert not await caller.read()
        await callers[2].connect(dial)
        await callers[2].read()
        assert [caller.ready is not None and caller.ready.HasField("resume_for") for caller in callers] == [True, False, True]
        await callers[0].connect(dial)
        assert await refusal_of(callers[0].wire) == (grpc.StatusCode.NOT_FOUND, "STREAM_UNKNOWN")
        callers[2].cut()


async def test_last_frames_that_were_not_taken_are_kept(chatml: Path) -> None:
    """A stream that ended while its caller did not read has not ended well: it makes no room for others."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens, step_s=0.0)
    little = {"grpc.http2.bdp_probe": 0, "grpc.http2.lookahead_bytes": 16_384}  # by default the transport may take up everything
    async with run_bench(chatml, worker, resume={"max_streams": 1}) as router, dialling_grpc(router.target, **little) as dial:
        caller, other = ResumingCaller(5), ResumingCaller(5)
        await caller.connect(dial)
        turns = [await caller.start(TurnSpec(messages=[ask()], max_output_tokens=2000, logprobs=True)) for _ in range(8)]
        await caller.half_close()
        await until(lambda: worker.calls == len(turns) and not router.turns_in_lanes())
        caller.cut()
        await until(lambda: router.app.registry.get_sample_value("tidegate_detached_streams") == 1)
        await other.connect(dial)
        await other.read()
        assert other.ready is not None
        assert not other.ready.HasField("resume_for")
        await caller.connect(dial)
        await caller.read_until_ended(*turns)
        assert {caller.texts[turn] for turn in turns} == {"a" * 2000}
        for left in (caller, other):
            left.cut()


@on_both_faces
async def test_a_caller_that_takes_its_leave_has_nothing_kept(chatml: Path, face: Face) -> None:
    """Its stream is gone when it ends, and makes room at once. Whoever never was to come back may say so too."""
    async with run_bench(chatml, Worker(chatml), resume={"max_streams": 1}) as router, face.at(router) as dial:
        for resume_for_s, kept in ((60, True), (60, True), (0, False)):
            caller = ResumingCaller(resume_for_s)
            await caller.connect(dial)
            await caller.read_until_ended(await caller.start(SPEC))
            assert caller.ready is not None
            assert caller.ready.HasField("resume_for") is kept
            await caller.send(LEAVE)
            await caller.read_until_ended(await caller.start(SPEC))
            await caller.half_close()
            assert not await caller.read()
            assert router.app.registry.get_sample_value("tidegate_detached_streams") == 0
            await caller.connect(dial)
            assert await refusal_of(caller.wire) == (grpc.StatusCode.NOT_FOUND, "STREAM_UNKNOWN")


@on_both_faces
async def test_turns_of_a_caller_that_took_its_leave_end_with_its_connection(chatml: Path, face: Face) -> None:
    """As if the stream had been set up without time to come back."""
    worker = Worker(chatml, lambda _: [Wait(1000)] if worker.calls == 1 else ["ok"])
    async with run_bench(chatml, worker, resume={"longest_s": 60.0}) as router, face.at(router) as dial:
        caller = ResumingCaller(60)
        await caller.connect(dial)
        await caller.start(SPEC)
        await until(lambda: worker.calls == 1)
        await caller.send(LEAVE)
        await caller.read_until_ended(await caller.start(SPEC))
        caller.cut()
        await until(lambda: worker.engine.cancelled == 1)

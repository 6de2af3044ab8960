"""What resuming a stream promises: nothing is lost, and nothing comes twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from tidegate.v1.chat_service_pb2 import CancelTurn, ConverseRequest, Setup, StartTurn, ToolResult, ToolResults
from tidegate.v1.event_pb2 import FINISH_REASON_CANCELLED, FINISH_REASON_LENGTH
from tidegate.v1.turn_pb2 import Tool, TurnSpec

from router.transport.outbox import seconds
from tests.bench.resuming import ResumingCaller
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.wires import GRPC, SOCKET, Face, ask_for_stream, on_both_faces, refusal_of
from tests.bench.worker import Worker

KEEP: dict[str, Any] = {"resume": {"longest_s": 0.5}}
PIECES = [f"{at:02} " for at in range(20)]
GO = '<tool_call>\n{"name": "go", "arguments": {}}\n</tool_call>'
SPEC = TurnSpec(messages=[ask()], max_output_tokens=60)
ENDLESS = TurnSpec(messages=[ask()], max_output_tokens=2000)


@on_both_faces
async def test_a_stream_tells_whether_it_can_be_resumed(chatml: Path, face: Face) -> None:
    """The time in force is what was asked for, at most the router's; a stream that asks for none has none, and no secret in its id."""
    granted = []
    async with run_bench(chatml, wait_up=False, **KEEP) as router, face.at(router) as dial:
        for setup in (Setup(), Setup(resume_for=seconds(0.2)), Setup(resume_for=seconds(9)), Setup(resume_for=seconds(-1))):
            wire = await dial(headers=(("x-request-id", "mine"),))
            await wire.send(ConverseRequest(setup=setup))
            frame = await wire.receive()
            assert frame is not None
            ready = frame.events[0].ready
            granted.append((ready.HasField("resume_for"), ready.resume_for.ToMilliseconds(), ready.stream_id == "mine"))
            assert ready.stream_id.startswith("mine")
            await wire.half_close()
            assert await wire.receive() is None
    assert granted == [(False, 0, True), (True, 200, False), (True, 500, False), (False, 0, True)]


@on_both_faces
async def test_frames_are_numbered(chatml: Path, face: Face) -> None:
    """From 1, by one, on streams that cannot be resumed too."""
    async with run_bench(chatml, Worker(chatml, PIECES)) as router, face.at(router) as dial:
        wire = await dial()
        await wire.send(ConverseRequest(setup=Setup()))
        await wire.send(ConverseRequest(start=StartTurn(turn=1, spec=SPEC)))
        frames = [await wire.receive()]
        while (frame := frames[-1]) is not None and not any(event.HasField("finished") for event in frame.events):
            frames.append(await wire.receive())
    assert [frame and frame.sequence for frame in frames] == list(range(1, len(frames) + 1))


@on_both_faces
async def test_a_stream_is_resumed_behind_every_frame(chatml: Path, face: Face) -> None:
    """The connection is cut after each single frame of an answer: the text comes whole and once, under numbers that go on."""
    async with run_bench(chatml, Worker(chatml, PIECES), **KEEP) as router, face.at(router) as dial:
        caller = ResumingCaller(5)
        await caller.connect(dial)
        await caller.read_with_cuts(await caller.start(SPEC), dial)
        caller.cut()
        assert caller.texts[1] == "".join(PIECES)
        assert caller.connections > 5
        sample = router.app.registry.get_sample_value
        assert sample("tidegate_resumed_streams_total") == caller.connections - 1


async def test_a_stream_goes_from_door_to_door(chatml: Path) -> None:
    """What began over gRPC goes on over a WebSocket, and back, behind every frame."""
    async with run_bench(chatml, Worker(chatml, PIECES), **KEEP) as router, GRPC.at(router) as first, SOCKET.at(router) as second:
        caller = ResumingCaller(5)
        await caller.connect(first)
        await caller.read_with_cuts(await caller.start(SPEC), second, first)
        caller.cut()
    assert caller.texts[1] == "".join(PIECES)
    assert caller.connections > 5


@on_both_faces
async def test_what_was_sent_is_sent_again_from_any_frame(chatml: Path, face: Face) -> None:
    """A caller that has read everything may go back to any frame it names, until it has named a later one."""
    async with run_bench(chatml, Worker(chatml, PIECES), **KEEP) as router, face.at(router) as dial:
        caller = ResumingCaller(5)
        await caller.connect(dial)
        await caller.start(SPEC)
        await caller.read_until_ended(1)
        caller.cut()
        frames = caller.sequence
        assert caller.ready is not None
        for arrived in range(frames + 1):
            wire = await ask_for_stream(dial, caller.ready.stream_id, arrived)
            told = [await wire.receive() for _ in range(arrived, frames + 1)]
            assert [frame and frame.sequence for frame in told] == [arrived, *range(arrived + 1, frames + 1)]
            await wire.half_close()
            assert await wire.receive() is None
        wire = await ask_for_stream(dial, caller.ready.stream_id, 0)
        assert await refusal_of(wire) == (grpc.StatusCode.OUT_OF_RANGE, "RESUME_GAP")


@on_both_faces
async def test_a_turn_goes_on_without_its_caller(chatml: Path, face: Face) -> None:
    """What a turn says meanwhile is there when its caller comes back, in few frames."""
    worker = Worker(chatml, ["a"] * 500, step_s=0.001)
    async with run_bench(chatml, worker, resume={"longest_s": 5.0}) as router, face.at(router) as dial:
        caller = ResumingCaller(5)
        await caller.connect(dial)
        await caller.start(ENDLESS)
        while not caller.texts[1]:
            await caller.read()
        caller.cut()
        await until(lambda: router.turns_in_lanes() == 0 and not worker.engine.has_work())
        await caller.connect(dial)
        before = caller.sequence
        await caller.read_until_ended(1)
        assert caller.texts[1] == "a" * 500
        assert caller.sequence - before < 50
        caller.cut()
        await until(lambda: router.app.registry.get_sample_value("tidegate_detached_streams") == 1)


@on_both_faces
async def test_new_turns_run_on_a_resumed_stream(chatml: Path, face: Face) -> None:
    """Numbers of turns go on too; a start that is sent again is ignored if it had arrived, and a turn can be cancelled."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens)
    async with run_bench(chatml, worker, **KEEP) as router, face.at(router) as dial:
        caller = ResumingCaller(5)
        await caller.connect(dial)
        await caller.read()
        first = await caller.start(ENDLESS)
        await until(lambda: worker.calls == 1)
        caller.cut()
        await caller.connect(dial)
        second = await caller.start(SPEC)
        await caller.read_until_ended(second)
        await caller.send(ConverseRequest(cancel=CancelTurn(turn=first)))
        await caller.read_until_ended(first)
        await caller.half_close()
        assert not await caller.read()
    assert worker.calls == 2
    reasons = [caller.ended[turn].finished.finish_reason for turn in (first, second)]
    assert reasons == [FINISH_REASON_CANCELLED, FINISH_REASON_LENGTH]


@on_both_faces
async def test_an_idle_stream_that_was_lost_takes_turns_again(chatml: Path, face: Face) -> None:
    """A lost connection of a stream on which nothing ran may look half-closed to the router."""
    async with run_bench(chatml, Worker(chatml), **KEEP) as router, face.at(router) as dial:
        caller = ResumingCaller(5)
        for _ in range(3):
            await caller.connect(dial)
            await caller.read()
            await caller.half_close()
            assert not await caller.read()
        await caller.connect(dial)
        await caller.read_until_ended(await caller.start(SPEC))
        assert caller.texts[1] == "ok"
        caller.cut()


@on_both_faces
async def test_results_that_had_arrived_are_ignored(chatml: Path, face: Face) -> None:
    """A caller that has heard nothing since it gave a tool's results gives them again; the turn runs once."""
    worker = Worker(chatml, lambda _: [GO] if worker.calls == 1 else ["ok"], step_s=0.01)
    async with run_bench(chatml, worker, **KEEP) as router, face.at(router) as dial:
        caller = ResumingCaller(5)
        await caller.connect(dial)
        turn = await caller.start(TurnSpec(messages=[ask()], tools=[Tool(name="go")]))
        await caller.read_until_ended(turn)
        (call,) = caller.calls
        results = ConverseRequest(tool_results=ToolResults(turn=turn, results=[ToolResult(call_id=call, content="gone")]))
        await caller.send(results)
        await until(lambda: worker.calls == 2)
        caller.cut()
        del caller.ended[turn]
        await caller.connect(dial)
        await caller.send(results)
        await caller.read_until_ended(turn)
        await caller.send(results)
        await caller.half_close()
        assert not await caller.read()
    assert worker.calls == 2
    assert caller.texts[turn] == "ok"

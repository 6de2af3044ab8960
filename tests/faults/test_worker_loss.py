"""Workers that go, end early, or talk nonsense: a turn is finished only when the worker said so, and the router finds its way back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from tidegate import Session, TidegateError
from tidegate.v1.chat_service_pb2 import CompleteRequest, StreamRequest, StreamResponse
from tidegate.v1.event_pb2 import FINISH_REASON_UNSPECIFIED
from tidegate.v1.turn_pb2 import TurnSpec
from tritonclient.grpc import service_pb2 as triton

from server.lanes import Frame
from tests.bench.raw_worker import LOAD, Requests, Responses, greeting, next_generation, run_raw_worker, tokens, write_frame
from tests.bench.router import run_router
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Break, End, Finish, Item, Worker

SPEC = TurnSpec(messages=[ask()], max_output_tokens=2000)

FAULTS: list[tuple[Item, str, str]] = [
    (End(Finish.FAILED, "out of memory"), "INTERNAL", "ENGINE_FAILED"),
    (End(Finish.TIMED_OUT), "UNAVAILABLE", "WORKER_STALLED"),
    (End(Finish.CANCELLED), "UNAVAILABLE", "WORKER_LOST"),
    (End(Finish.REFUSED, "no"), "INTERNAL", "ENGINE_REFUSED"),
    (Break(), "INTERNAL", "ENGINE_FAILED"),
]


async def failure_of(session: Session) -> tuple[str, TidegateError]:
    """The text that a turn brought before it failed, and the failure; nothing may say that it finished."""
    turn, text = await session.start(*SPEC.messages, max_output_tokens=2000), ""
    with pytest.raises(TidegateError) as caught:
        async for event in turn:
            text += event.text_delta.text
    assert turn.finish_reason == FINISH_REASON_UNSPECIFIED
    return text, caught.value


async def kinds_of(stream: grpc.aio.UnaryStreamCall[StreamRequest, StreamResponse]) -> list[str]:
    """What kinds of events a Stream call brought before it failed."""
    kinds: list[str] = []
    with pytest.raises(grpc.aio.AioRpcError):
        async for frame in stream:
            kinds += (str(event.WhichOneof("event")) for event in frame.events)
    return kinds


@pytest.mark.parametrize(("fault", "code", "reason"), FAULTS)
async def test_a_generation_that_fails_is_never_finished(chatml: Path, fault: Item, code: str, reason: str) -> None:
    """However a worker gives a turn up after some tokens, each kind of call fails with the reason, and the metric counts it."""
    async with run_bench(chatml, Worker(chatml, ["a", fault])) as router, router.client() as client, client.session() as session:
        text, error = await failure_of(session)
        assert (text, error.code.name, error.reason) == ("a", code, reason)
        whole, stream = client.stub.Complete(CompleteRequest(spec=SPEC)), client.stub.Stream(StreamRequest(spec=SPEC))
        assert "finished" not in await kinds_of(stream)
        assert {(await stream.code()).name, (await whole.code()).name} == {code}
        assert router.app.registry.get_sample_value("tidegate_turns_total", {"model": "test", "outcome": reason}) == 3


async def test_a_broken_engine_is_replaced(chatml: Path) -> None:
    """When the engine breaks, every turn in it fails, and the next turn runs in a new engine without a reconnect."""
    worker = Worker(chatml, lambda _: ["a", *([Break()] if worker.calls == 5 else ["b"] * 1000)])
    async with run_bench(chatml, worker) as router, router.client() as client, client.session() as session:
        failures = await asyncio.gather(*(failure_of(session) for _ in range(5)))
        assert {error.reason for _, error in failures} == {"ENGINE_FAILED"}
        turn = await session.start(ask(), max_output_tokens=3)
        assert await turn.text() == "abb"
        assert len(worker.engines) == 2


async def test_a_worker_cut_off_fails_its_turns_and_is_used_again(chatml: Path) -> None:
    """A worker whose connection breaks mid-answer fails every kind of call at once; when it is back, the same stream goes on."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens)
    async with run_bench(chatml, worker) as router, router.client() as client, client.session() as session:
        turn = asyncio.create_task(failure_of(session))
        stream, whole = client.stub.Stream(StreamRequest(spec=SPEC)), client.stub.Complete(CompleteRequest(spec=SPEC))
        await until(lambda: worker.calls == 3 and worker.engine.made > 10)
        await worker.stop()
        text, error = await turn
        assert set(text) == {"a"}
        assert (error.reason, error.retry_after) == ("WORKER_LOST", 1.0)
        assert "finished" not in await kinds_of(stream)
        assert {await stream.code(), await whole.code()} == {grpc.StatusCode.UNAVAILABLE}
        _, error = await failure_of(session)
        assert error.reason == "NO_WORKER"
        await worker.start()
        await until(lambda: all(lane.up for lane in router.app.workers))
        assert await (await session.start(ask(), max_output_tokens=5)).text() == "aaaaa"


async def test_when_a_worker_dies_the_other_answers(chatml: Path) -> None:
    """After one of two workers has died every new turn runs on the other, and on both again when it is back."""
    workers = [Worker(chatml), Worker(chatml)]
    async with run_bench(chatml, *workers) as router, router.client() as client, client.session() as session:
        await workers[0].stop()
        await until(lambda: sum(lane.up for lane in router.app.workers) == 1, within_s=1.0)
        for _ in range(5):
            turn = await session.start(ask())
            assert await turn.text() == "ok"
            assert turn.started is not None
            assert turn.started.worker == workers[1].address
        await workers[0].start()
        await until(lambda: all(lane.up for lane in router.app.workers))
        await (await session.start(ask())).text()
        assert sum(worker.calls for worker in workers) == 6


async def test_a_refused_turn_is_not_tried_again(chatml: Path) -> None:
    """When workers refuse, one turn of a caller costs one call of one worker, not a storm of them."""
    workers = [Worker(chatml, [End(Finish.REFUSED)]) for _ in range(3)]
    async with run_bench(chatml, *workers) as router, router.client() as client, client.session() as session:
        await failure_of(session)
        assert sum(worker.calls for worker in workers) == 1


# Workers that talk out of turn, by what they send after the first tokens of a turn.


async def end_cleanly(requests: Requests) -> Responses:
    """The stream ends with OK."""
    return
    yield


async def skip_a_frame(requests: Requests) -> Responses:
    yield tokens(9, 1, [40])


async def repeat_a_frame(requests: Requests) -> Responses:
    yield tokens(2, 1, [40])


async def send_no_frame(requests: Requests) -> Responses:
    yield triton.ModelStreamInferResponse(infer_response=triton.ModelInferResponse(id="attach"))


async def send_an_unknown_finish(requests: Requests) -> Responses:
    frame = Frame(3, LOAD, request=[1], counts=[0], finish=[77])
    yield write_frame(frame)


async def send_bad_detail(requests: Requests) -> Responses:
    yield write_frame(Frame(3, LOAD, detail=["[1]"]))


async def send_a_lane_error(requests: Requests) -> Responses:
    yield triton.ModelStreamInferResponse(error_message="the engine is down", infer_response=triton.ModelInferResponse(id="attach"))


NONSENSE = [end_cleanly, skip_a_frame, repeat_a_frame, send_no_frame, send_an_unknown_finish, send_bad_detail, send_a_lane_error]


async def play_then(folder: Path, then: Callable[[Requests], Responses], requests: Requests) -> Responses:
    """A worker that brings two tokens of the first turn, then goes on as `then` says."""
    yield greeting(folder)
    await next_generation(requests)
    yield tokens(2, 1, list(Worker(folder).tokens_of("ab")))
    async for response in then(requests):
        yield response


@pytest.mark.parametrize("then", NONSENSE)
async def test_a_lane_that_cannot_go_on_fails_its_turns(chatml: Path, then: Callable[[Requests], Responses]) -> None:
    """A worker that ends the lane without a word, or breaks its rules, has lost its turns; the router then attaches anew."""
    attached = 0

    async def play(requests: Requests) -> Responses:
        nonlocal attached
        attached += 1
        async for response in play_then(chatml, then, requests):
            yield response

    async with (
        run_raw_worker(play) as address,
        run_router(chatml, address) as router,
        router.client() as client,
        client.session() as session,
    ):
        text, error = await failure_of(session)
        assert (text, error.code, error.reason) == ("ab", grpc.StatusCode.UNAVAILABLE, "WORKER_LOST")
        await until(lambda: attached == 2)
        assert router.turns_in_lanes() == 0

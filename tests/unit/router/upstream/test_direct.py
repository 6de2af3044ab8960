"""The link to a stock worker, when things do not go as they should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tritonclient.grpc import service_pb2 as triton

from router.config import Timeouts
from router.errors import TidegateError
from router.model import WorkerFinish
from router.upstream.access import PLAIN
from router.upstream.link import Generation, Owner
from router.upstream.worker import Worker
from tests.bench.waiting import until
from tests.unit.router.upstream.fake_triton import ASKED, FACTS, FakeTriton, Responses, Taken, answer_once, stock_config, tokens

QUICK = Timeouts(first_token_s=0.2, idle_s=0.2, worker_silence_s=0.4)
PATIENT = Timeouts()


async def stand_still() -> Responses:
    yield tokens(7)
    await asyncio.Event().wait()


async def break_off() -> Responses:
    yield tokens(7)
    raise RuntimeError


async def end_early() -> Responses:
    yield tokens(7)


async def talk_nonsense() -> Responses:
    yield tokens(7)
    yield triton.ModelStreamInferResponse(infer_response=triton.ModelInferResponse())


@asynccontextmanager
async def run_worker(fake: FakeTriton, timeouts: Timeouts = PATIENT) -> AsyncIterator[Worker]:
    """A worker whose address the fake serves, up."""
    async with fake.running() as address:
        worker = Worker(address, FACTS, timeouts, Owner("test", lambda: None), PLAIN)
        task = asyncio.create_task(worker.run())
        try:
            await until(lambda: worker.up)
            yield worker
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert worker.running == 0


def make_triton(play: Callable[[], Responses], ready: Callable[[], bool] = lambda: True) -> FakeTriton:
    return FakeTriton(stock_config(), play, ready)


async def failure_of(generation: Generation) -> TidegateError:
    with pytest.raises(TidegateError) as failed:
        await generation.wait()
    return failed.value


async def test_an_answer_is_handed_on() -> None:
    """Tokens as they come, the derived finish with the last response, and each request under an id of its own."""
    fake, turns = make_triton(answer_once), [Taken(), Taken()]
    async with run_worker(fake) as worker:
        for turn in turns:
            await worker.submit(ASKED, turn).wait()
    assert [(turn.tokens, turn.finish) for turn in turns] == [([7, 8], WorkerFinish.END_ID)] * 2
    assert len({request.id for request in fake.requests}) == 2


async def test_load_is_what_this_router_runs_there() -> None:
    """The stock model does not tell its own."""
    async with run_worker(make_triton(stand_still), Timeouts()) as worker:
        worker.submit(ASKED, Taken())
        assert (worker.running, worker.load.active) == (1, 1)


@pytest.mark.parametrize(
    ("play", "reason"),
    [(break_off, "WORKER_LOST"), (end_early, "WORKER_LOST"), (talk_nonsense, "ENGINE_FAILED"), (stand_still, "WORKER_STALLED")],
)
async def test_a_stream_that_goes_wrong_fails_its_turn_only(play: Callable[[], Responses], reason: str) -> None:
    """The worker stays up while it says that it is ready, and what the turn had is not taken back."""
    fake, turn = make_triton(play), Taken()
    async with run_worker(fake, QUICK if play is stand_still else PATIENT) as worker:
        assert (await failure_of(worker.submit(ASKED, turn))).reason == reason
        assert turn.tokens == [7]
        await until(lambda: fake.ended == 1)
        fake.play = answer_once
        await worker.submit(ASKED, Taken()).wait()


async def test_closing_a_generation_cancels_its_stream() -> None:
    """And no other one."""
    fake = make_triton(stand_still)
    async with run_worker(fake, Timeouts()) as worker:
        one, other = worker.submit(ASKED, Taken()), worker.submit(ASKED, Taken())
        await until(lambda: len(fake.requests) == 2)
        one.close()
        await one.wait()
        await until(lambda: fake.ended == 1)
        assert worker.running == 1
        other.close()
        await until(lambda: fake.ended == 2)


async def test_a_generation_closed_before_its_stream_opened_never_runs() -> None:
    """The caller was faster than the connection."""
    fake = make_triton(answer_once)
    async with run_worker(fake) as worker:
        worker.submit(ASKED, Taken()).close()
        await worker.submit(ASKED, Taken()).wait()
    assert len(fake.requests) == 1


async def test_a_worker_that_is_not_ready_ends_what_it_has() -> None:
    """It gets no more, but a turn that runs there may finish."""
    gate, ready = asyncio.Event(), [True]

    async def wait_for_gate() -> Responses:
        yield tokens(7)
        await gate.wait()
        yield tokens(8, final=True)

    async with run_worker(make_triton(wait_for_gate, lambda: ready[0]), Timeouts(worker_silence_s=0.4)) as worker:
        turn = Taken()
        generation = worker.submit(ASKED, turn)
        ready[0] = False
        await until(lambda: not worker.up)
        with pytest.raises(TidegateError, match="no worker"):
            worker.submit(ASKED, Taken())
        gate.set()
        await generation.wait()
        assert turn.tokens == [7, 8]
        ready[0] = True
        await until(lambda: worker.up)


async def test_a_worker_that_does_not_answer_is_lost() -> None:
    """A connection that stands but says nothing is worth no more than a broken one."""
    silent = [False]

    class Hanging(FakeTriton):
        async def ModelReady(self, request: triton.ModelReadyRequest, context: Any) -> triton.ModelReadyResponse:
            await asyncio.sleep(3600 if silent[0] else 0)
            return triton.ModelReadyResponse(ready=True)

    async with run_worker(Hanging(stock_config(), stand_still), Timeouts(worker_silence_s=0.2)) as worker:
        generation = worker.submit(ASKED, Taken())
        silent[0] = True
        assert (await failure_of(generation)).reason == "WORKER_LOST"
        assert not worker.up


async def test_a_turn_that_fails_on_its_tokens_is_ended_in_the_engine() -> None:
    """The fault is the router's; nobody else's turn knows of it."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    fake = make_triton(stand_still)
    async with run_worker(fake, Timeouts()) as worker:
        assert (await failure_of(worker.submit(ASKED, fail))).reason == "INTERNAL"
        await until(lambda: fake.ended == 1)
        assert worker.running == 0

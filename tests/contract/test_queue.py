"""Turns that wait: what their callers see, in which order they go, and how a wait ends."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from tidegate import Session, TidegateError, Turn
from tidegate.v1.chat_service_pb2 import CompleteRequest
from tidegate.v1.chat_service_pb2_grpc import ChatServiceStub
from tidegate.v1.turn_pb2 import PRIORITY_BATCH, PRIORITY_INTERACTIVE, TurnSpec

from tests.bench.calls import failure_of
from tests.bench.router import Router
from tests.bench.tenants import bearer, entries, make_key
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Worker


def narrow(folder: Path, step_s: float = 0.002) -> Worker:
    """A worker that runs one turn at once, as long as it is asked to."""
    return Worker(folder, lambda request: ["a"] * request.max_new_tokens, step_s=step_s, max_sequences=1)


def waiting(router: Router) -> int:
    return router.app.pools["test"].queue.waiting


async def events_of(turn: Turn[str]) -> list[str]:
    return [str(event.WhichOneof("event")) async for event in turn]


async def test_a_waiting_turn_sees_its_place_at_once_and_twice_a_second(chatml: Path) -> None:
    """Before it starts: turns in front of it, and the expected wait between its error bars."""
    async with run_bench(chatml, narrow(chatml)) as router, router.client() as client, client.session() as session:
        first = await session.start(ask(), max_output_tokens=600)
        await until(lambda: router.turns_in_lanes() == 1)
        asked = time.monotonic()
        others = [await session.start(ask(), max_output_tokens=5) for _ in range(2)]
        told: list[tuple[float, int]] = []
        async for event in others[1]:
            if event.HasField("queued"):
                told.append((time.monotonic() - asked, event.queued.position))
                low, eta, high = (it.ToTimedelta() for it in (event.queued.eta_low, event.queued.eta, event.queued.eta_high))
                assert low <= eta <= high
        assert told[0][1] == 1
        assert len(told) >= 2
        assert [await turn.text() for turn in (first, others[0])] == ["a" * 600, "a" * 5]


async def test_a_slot_that_comes_free_is_given_on_at_once(chatml: Path) -> None:
    """Nobody waits for the next look at the queue: the last of twenty short turns hears of its place as often as their work takes."""
    async with run_bench(chatml, narrow(chatml, 0.001)) as router, router.client() as client, client.session() as session:
        turns = [await session.start(ask(), max_output_tokens=20) for _ in range(20)]
        told = await events_of(turns[-1])
        assert told.count("queued") < 8, "with a look of 0.4 s between any two turns it would be 19"
        assert [await turn.text() for turn in turns[:-1]] == ["a" * 20] * 19


async def test_metrics_tell_what_to_scale_workers_by(chatml: Path) -> None:
    """At each scrape: turns and tokens that wait, how busy the workers are, and when a turn that comes now would begin to be answered."""
    async with run_bench(chatml, narrow(chatml)) as router, router.client() as client, client.session() as session:
        idle = scrape(router)
        assert (idle["queued_turns"], idle["queued_tokens"], idle["busy_fraction"]) == (0, 0, 0)
        turns = [await session.start(ask(), max_output_tokens=200) for _ in range(3)]
        await until(lambda: waiting(router) == 2)
        asked = scrape(router)
        assert (asked["queued_turns"], asked["busy_fraction"]) == (2, 1)
        assert asked["queued_tokens"] > 2 * len("go")
        assert asked["predicted_time_to_first_token_seconds"] > idle["predicted_time_to_first_token_seconds"]
        for turn in turns:
            await turn.cancel()


def scrape(router: Router) -> dict[str, float]:
    """The figures of the model `test`, by name without `tidegate_`."""
    samples = (sample for family in router.app.registry.collect() for sample in family.samples)
    return {sample.name.removeprefix("tidegate_"): sample.value for sample in samples if sample.labels == {"model": "test"}}


async def test_a_batch_turn_lets_interactive_ones_pass(chatml: Path) -> None:
    """Of one tenant's turns the priority decides, whichever came first."""
    async with run_bench(chatml, narrow(chatml)) as router, router.stub() as stub:
        blocker = asyncio.create_task(complete(stub, max_output_tokens=100))
        await until(lambda: router.turns_in_lanes() == 1)
        batch = asyncio.create_task(complete(stub, max_output_tokens=5, priority=PRIORITY_BATCH))
        await until(lambda: waiting(router) == 1)
        quick = asyncio.create_task(complete(stub, max_output_tokens=5, priority=PRIORITY_INTERACTIVE))
        expected = [await turn for turn in (blocker, quick, batch)]
        assert [entry.turn for entry in await entries(router)] == expected


async def complete(stub: ChatServiceStub, **spec: Any) -> str:
    """Runs a turn; its id in the ledger."""
    return str((await stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask()], **spec)))).started.turn_id)


async def test_a_wait_that_is_too_long_is_refused_with_a_time(chatml: Path) -> None:
    """The caller's own longest wait, or the call's deadline: the refusal comes within it and says when to come again."""
    async with run_bench(chatml, narrow(chatml)) as router, router.client() as client, client.session() as session, router.stub() as stub:
        blocker = await session.start(ask(), max_output_tokens=2000)
        await until(lambda: router.turns_in_lanes() == 1)
        hurried = TurnSpec(messages=[ask()], max_wait=Duration(nanos=300_000_000))
        error = await failure_of(stub.Complete(CompleteRequest(spec=hurried)))
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.reason in ("DEADLINE_PASSED", "DEADLINE_UNREACHABLE")
        assert error.retry_after is not None
        await blocker.cancel()


async def test_a_full_queue_refuses(chatml: Path) -> None:
    """Beyond its length, and beyond a tenant's share of it; those that wait are served."""
    async with run_bench(chatml, narrow(chatml), queue={"length": 4, "tenant_share": 0.5}) as router:
        async with router.client() as client, client.session() as session:
            turns = [await session.start(ask(), max_output_tokens=50) for _ in range(3)]
            await until(lambda: waiting(router) == 2)
            refused = await session.start(ask())
            with pytest.raises(TidegateError) as failure:
                await refused.text()
            assert (failure.value.code, failure.value.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL")
            assert failure.value.retry_after
            assert [await turn.text() for turn in turns] == ["a" * 50] * 3


async def test_tenants_get_equal_service_whatever_the_size_of_their_turns(chatml: Path) -> None:
    """Two backlogged tenants, one with turns ten times the other's: the tokens each gets differ by no more than a tenth."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens, step_s=0.0005, max_sequences=2)
    async with run_bench(chatml, worker) as router:
        async with backlog(router, "large", 50, 60) as large, backlog(router, "small", 5, 200) as small:
            await until(lambda: large.tokens + small.tokens > 3000, within_s=60.0)
            assert 0.9 <= large.service() / small.service() <= 1.1


class Backlog:
    """A tenant's turns, all asked for at once, and what they got."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.tokens = 0
        self.prompts = 0

    async def follow(self, turn: Turn[str]) -> None:
        async for event in turn:
            if event.HasField("started"):
                self.prompts += event.started.prompt_tokens
            elif event.HasField("text_delta"):
                self.tokens += len(event.text_delta.text)

    def service(self) -> float:
        """As the queue counts it: an output token is two prompt tokens' worth."""
        return self.prompts + 2 * self.tokens


def backlog(router: Router, tenant: str, tokens: int, turns: int) -> _Running:
    return _Running(router, tenant, tokens, turns)


class _Running:
    def __init__(self, router: Router, tenant: str, tokens: int, turns: int) -> None:
        self._router, self._tenant, self._tokens, self._turns = router, tenant, tokens, turns

    async def __aenter__(self) -> Backlog:
        key = await make_key(self._router, self._tenant, "u")
        self._client = await self._router.client().__aenter__()
        session = await self._client.session(headers=dict(bearer(key))).__aenter__()
        self._session, running = session, Backlog(session)
        started = [await session.start(ask(), max_output_tokens=self._tokens) for _ in range(self._turns)]
        self._tasks = [asyncio.create_task(running.follow(turn)) for turn in started]
        return running

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.__aexit__(None, None, None)
        await self._client.__aexit__(None, None, None)

"""Two routers before one worker, with one database and one Redis: what one decides holds at the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest
from tidegate.errors import from_rpc_error
from tidegate.v1.chat_service_pb2 import CompleteRequest
from tidegate.v1.turn_pb2 import TurnSpec

from server.engine.base import Request
from tests.bench.pair import pair
from tests.bench.router import Router
from tests.bench.tenants import bearer, entries, limit, make_key, revoke
from tests.bench.waiting import until
from tests.bench.whole import ask
from tests.bench.worker import Wait, Worker

pytestmark = pytest.mark.slow  # real servers, and bounds in real time

PATIENT = {"redis_deadline_s": 5.0}
"""For tests that are not about it: where many turns come at once, a busy machine makes Redis look away."""


async def outcome(router: Router, key: str, tokens: int = 2) -> str:
    """How a turn ends: `ok`, or the reason of its failure."""
    async with router.stub() as stub:
        spec = TurnSpec(messages=[ask()], max_output_tokens=tokens)
        try:
            await stub.Complete(CompleteRequest(spec=spec), metadata=bearer(key))
        except grpc.aio.AioRpcError as error:
            return from_rpc_error(error).reason
    return "ok"


async def refresh(*routers: Router) -> None:
    for router in routers:
        await router.app.terms.refresh()


async def test_a_revoked_key_is_refused_by_both_within_a_second(chatml: Path) -> None:
    """Revoked through one; the other has it in memory."""
    async with pair(chatml, Worker(chatml)) as (one, two, _):
        key = await make_key(one)
        assert [await outcome(router, key) for router in (one, two)] == ["ok", "ok"]
        await revoke(one, key)
        deadline = time.monotonic() + 1.0
        for router in (one, two):
            while await outcome(router, key) == "ok":
                assert time.monotonic() < deadline


async def test_a_limit_of_five_lets_five_through(chatml: Path) -> None:
    """Of a hundred turns at once, fifty at each router: five at once, and as many in the minute as the limit says."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens, step_s=0.01)
    async with pair(chatml, worker) as (one, two, _):
        key = await make_key(one)
        await limit(one, "acme", concurrent_turns=5, requests_per_minute=8)
        await refresh(two)
        assert count_ok(await storm((one, two), key, 100)) == 5
        assert count_ok(await storm((one, two), key, 1)) == 3


async def storm(routers: Sequence[Router], key: str, tokens: int) -> list[str]:
    return await asyncio.gather(*(outcome(router, key, tokens) for router in routers for _ in range(50)))


async def test_a_limit_that_is_lowered_holds_at_the_other_too(chatml: Path) -> None:
    """Soon after, by itself: the other router has the higher one in memory."""
    async with pair(chatml, Worker(chatml)) as (one, two, _):
        key = await make_key(one)
        await limit(one, "acme", requests_per_minute=1000)
        await refresh(two)
        assert await outcome(two, key) == "ok"
        await limit(one, "acme", requests_per_minute=0)

        async def is_refused() -> bool:
            return await outcome(two, key) != "ok"

        await until(is_refused)


def count_ok(outcomes: Sequence[str]) -> int:
    assert set(outcomes) <= {"ok", "QUOTA_EXCEEDED"}
    return outcomes.count("ok")


@pytest.mark.parametrize(("policy", "expected"), [("refuse", {"QUOTA_UNAVAILABLE"}), ("share", {"ok", "QUOTA_EXCEEDED"})])
async def test_without_redis_the_policy_decides_and_nothing_hangs(chatml: Path, policy: str, expected: set[str]) -> None:
    """A turn that runs finishes, new ones are refused or get this router's share, and what was used is in the ledger once."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens, step_s=0.002)
    async with pair(chatml, worker, redis_away=policy, redis_deadline_s=0.1) as (one, two, redis):
        key = await make_key(one)
        await limit(one, "acme", requests_per_minute=10)
        await refresh(two)
        running = asyncio.create_task(outcome(one, key, 300))
        await until(lambda: worker.calls == 1)
        redis.stall()
        async with asyncio.timeout(60.0):
            assert set(await storm((one, two), key, 2)) == expected
        assert await running == "ok"
        redis.resume()
        served = [entry for entry in [*await entries(one), *await entries(two)] if entry.finish == "length"]
        assert {entry.turn for entry in served if entry.completion_tokens == 300}


async def test_the_engines_own_queue_stays_empty(chatml: Path) -> None:
    """Each router leaves the slots that the other's turns hold; a slot that comes free there is used here."""
    found: list[int] = []
    worker = Worker(chatml, max_sequences=8)

    def play(request: Request) -> Sequence[Wait]:
        load = worker.engine.load()
        found.append(load.active + load.queued)
        return [Wait(1000)]

    worker.script = play
    async with pair(chatml, worker, **PATIENT) as (one, two, _), one.client() as first, two.client() as second:
        async with first.session() as here, second.session() as there:
            running = [await here.start(ask()) for _ in range(8)]
            await until(lambda: worker.calls == 8)
            queue = two.app.pools["test"].queue
            await until(lambda: queue.slots == 0)
            waiting = [await there.start(ask()) for _ in range(4)]
            await until(lambda: queue.waiting == 4)
            for turn in running[:4]:
                before = worker.calls
                await turn.cancel()
                await until(lambda: worker.calls > before)  # noqa: B023 - waited for here
            assert found == [*range(8), *[7] * 4]
            await asyncio.gather(*(turn.cancel() for turn in (*running, *waiting)))


async def test_two_routers_use_all_slots(chatml: Path) -> None:
    """In the engine's own queue waits only what both send in the moment before they hear of each other."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens, step_s=0.002, max_sequences=8)
    async with pair(chatml, worker, **PATIENT) as (one, two, _):
        key = await make_key(one)
        turns = [asyncio.create_task(outcome(router, key, 100)) for router in (one, two) for _ in range(40)]
        most = 0
        while not all(turn.done() for turn in turns):
            most = max(most, worker.engine.load().queued)
            await asyncio.sleep(0.005)
        assert {turn.result() for turn in turns} == {"ok"}
        assert most <= 8

"""Two implementations of one arithmetic: what Redis decides, memory decides."""

from __future__ import annotations

import asyncio
import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from router.quota.estimate import OutputEstimator
from router.quota.limits import Amounts, Bounds, Limits, Subject, SubjectKind
from router.quota.memory import MemoryStore
from router.quota.quota import Ask, StoredQuota
from router.quota.redis import RedisStore
from router.quota.store import Granted, StoreAway
from tests.budget import examples
from tests.unit.router.quota.redis_server import RedisServer

steps = st.lists(
    st.tuples(st.sampled_from(["reserve", "extend", "settle"]), st.integers(0, 4), st.integers(0, 120), st.integers(0, 120)), max_size=25
)


@settings(max_examples=examples(0.4), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
async def test_redis_decides_as_memory_does(server: RedisServer, steps: list[tuple[str, int, int, int]]) -> None:
    """The same calls get the same answers from both stores: the scripts are the arithmetic of window.py and booking.py."""
    limits = Limits(requests_per_minute=6, output_tokens_per_minute=300, tokens_per_day=500, concurrent_turns=3, micros_per_month=200)
    bounds = Subject(SubjectKind.TENANT, "acme", limits).bounds
    memory = MemoryStore(lambda: time.time_ns() // 1_000_000)
    async with RedisStore(server.url, prefix=f"{time.monotonic_ns()}:", deadline_s=5.0) as shared:
        running: set[int] = set()
        ended: set[int] = set()
        for name, turn, left, right in steps:
            amounts = Amounts(1, left, right, left + right)
            if turn in ended or (name != "reserve" and turn not in running):
                continue
            if name == "settle":
                ended.add(turn)
                await asyncio.gather(*(store.settle(f"{turn}", bounds, amounts) for store in (memory, shared)))
                continue
            answers = [await _decide(store, name, f"{turn}", bounds, amounts) for store in (memory, shared)]
            assert answers[0] == answers[1]
            if isinstance(answers[0], Granted):
                running.add(turn)


async def test_a_decision_that_fails_fails_alone(server: RedisServer, admin: Redis) -> None:
    """Another tenant's counter is broken: who asked in the same moment is granted, and has the figures of his own limits."""
    good, bad = (Subject(SubjectKind.TENANT, name, Limits(requests_per_minute=9)).bounds for name in ("good", "bad"))
    async with RedisStore(server.url, deadline_s=5.0) as store:
        await admin.set("tidegate:{quota}:tenant:bad:requests_per_minute", "no window")
        asked = (store.reserve(f"{number}", bad if number == 1 else good, Amounts(1), Amounts) for number in range(3))
        first, broken, last = await asyncio.gather(*asked, return_exceptions=True)
        assert (first, last) == (Granted((8,)), Granted((7,)))
        assert isinstance(broken, StoreAway)
        assert broken.maybe_done


async def test_a_reservation_that_is_cancelled_leaves_nothing(server: RedisServer) -> None:
    """At whichever step of the event loop it is cancelled: nothing stays booked, and no place is taken."""
    acme = Subject(SubjectKind.TENANT, "acme", Limits(requests_per_minute=1_000, concurrent_turns=1_000))
    async with RedisStore(server.url, deadline_s=5.0) as store:
        quota = StoredQuota(store, OutputEstimator())
        granted = 0
        for number in range(60):
            task = asyncio.create_task(quota.reserve([acme], Ask(f"{number}", "acme", "small", 1, 1)))
            for _ in range(number % 12):
                await asyncio.sleep(0)
            granted += task.done()
            task.cancel()
            await asyncio.wait({task})
        hold = await quota.reserve([acme], Ask("last", "acme", "small", 1, 1))
        assert [allowance.left for allowance in hold.remaining()] == [999 - granted] * 2


async def _decide(store: MemoryStore | RedisStore, name: str, hold_id: str, bounds: Bounds, amounts: Amounts) -> object:
    """The answer without its wait, which depends on the moment."""
    if name == "reserve":
        answer = await store.reserve(hold_id, bounds, amounts, Amounts)
    else:
        answer = await store.extend(hold_id, bounds, amounts)
    return answer if isinstance(answer, Granted) else (answer.bound.rule.name, answer.wait_ms is None)

"""Two implementations of one arithmetic: what Redis decides, memory decides."""

from __future__ import annotations

import asyncio
import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.quota.limits import Amounts, Bound, Limits, Subject, SubjectKind
from router.quota.memory import MemoryStore
from router.quota.redis import RedisStore
from router.quota.store import Granted
from tests.unit.router.quota.redis_server import RedisServer

steps = st.lists(
    st.tuples(st.sampled_from(["reserve", "extend", "settle"]), st.integers(0, 4), st.integers(0, 120), st.integers(0, 120)), max_size=25
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


async def _decide(store: MemoryStore | RedisStore, name: str, hold_id: str, bounds: tuple[Bound, ...], amounts: Amounts) -> object:
    """The answer without its wait, which depends on the moment."""
    if name == "reserve":
        answer = await store.reserve(hold_id, bounds, amounts, Amounts)
    else:
        answer = await store.extend(hold_id, bounds, amounts)
    return answer if isinstance(answer, Granted) else (answer.bound.rule.name, answer.wait_ms is None)

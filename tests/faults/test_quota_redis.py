"""Quotas shared through a real Redis: joint limits, keys that end, and a server that stalls, dies, forgets or forbids."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from router.errors import RouterError
from router.quota.estimate import OutputEstimator
from router.quota.failover import FailClosed, FailOpen
from router.quota.limits import Amounts, Limits, Subject, SubjectKind
from router.quota.memory import MemoryStore
from router.quota.quota import Ask, QuotaExceeded, StoredQuota
from router.quota.redis import RedisStore
from router.redis.scripts import StoreRefused
from tests.bench.waiting import until
from tests.unit.router.quota.redis_server import CROWD, HOLDER, RedisServer, RouterProcess

pytestmark = pytest.mark.slow  # real servers, and bounds in real time

DECISION_S = 0.1
PATIENT_S = 5.0
"""A deadline for tests that are not about deadlines."""


def acme(**limits: int) -> Subject:
    return Subject(SubjectKind.TENANT, "acme", Limits(**limits))


def ask(turn_id: str, most: int = 100) -> Ask:
    return Ask(turn_id, "acme", "small", 10, most)


def quota_on(store: RedisStore | FailOpen | FailClosed) -> StoredQuota:
    return StoredQuota(store, OutputEstimator(default=50))


async def read_used(admin: Redis, name: str) -> int:
    """What the tenant's window holds."""
    return sum(int(amount) for amount in await admin.hvals(f"tidegate:{{quota}}:tenant:acme:{name}"))


@pytest.mark.parametrize("limit", ["concurrent_turns", "requests_per_minute", "input_tokens_per_minute"])
def test_of_a_hundred_from_two_processes_five_pass(server: RedisServer, limit: str) -> None:
    """Fifty at once from each of two routers against a limit of five."""
    clients = [RouterProcess(CROWD, server.url, name, limit) for name in ("a", "b")]
    try:
        assert [client.read_line() for client in clients] == ["ready"] * 2
        for client in clients:
            client.go_on()
        assert sum(int(client.read_line()) for client in clients) == 5
    finally:
        for client in clients:
            client.kill()


async def test_a_dead_routers_turns_vanish(server: RedisServer, admin: Redis) -> None:
    """A router that is killed keeps its place until its lease ends; then another brings its bookings to what was counted."""
    subject = acme(concurrent_turns=1, output_tokens_per_minute=1_000)
    dead = RouterProcess(HOLDER, server.url)
    assert dead.read_line() == "ready"
    async with RedisStore(server.url, lease_s=0.5, deadline_s=PATIENT_S) as alive:
        with pytest.raises(QuotaExceeded) as refused:
            await quota_on(alive).reserve([subject], ask("early"))
        assert refused.value.allowance.name == "concurrent_turns"
        assert await read_used(admin, "output_tokens_per_minute") == 60
        dead.kill()
        await until(lambda: _has(admin, "output_tokens_per_minute", 7))
        async with await quota_on(alive).reserve([subject], ask("late")):
            pass
        assert await read_used(admin, "output_tokens_per_minute") == 7


async def test_a_router_that_was_cut_off_still_settles(server: RedisServer, admin: Redis) -> None:
    """It stands still for longer than its lease and is taken for dead; what it produced is charged in the end."""
    slow = RouterProcess(HOLDER, server.url)
    try:
        assert slow.read_line() == "ready"
        slow.send(signal.SIGSTOP)
        async with RedisStore(server.url, lease_s=0.5, deadline_s=PATIENT_S):
            await until(lambda: _has(admin, "output_tokens_per_minute", 7))
        slow.send(signal.SIGCONT)
        slow.go_on()
        assert slow.read_line() == "settled"
        assert await read_used(admin, "output_tokens_per_minute") == 33
    finally:
        slow.kill()


async def _has(admin: Redis, name: str, amount: int) -> bool:
    return await read_used(admin, name) == amount


async def test_a_running_turn_keeps_its_place(server: RedisServer) -> None:
    """Leases are renewed for as long as the turn runs."""
    subject = acme(concurrent_turns=1)
    async with RedisStore(server.url, lease_s=1.5, deadline_s=PATIENT_S) as store:
        async with await quota_on(store).reserve([subject], ask("long")):
            await asyncio.sleep(2.0)
            with pytest.raises(QuotaExceeded):
                await quota_on(store).reserve([subject], ask("other"))
        async with await quota_on(store).reserve([subject], ask("next")):
            pass


async def test_every_key_ends(server: RedisServer, admin: Redis) -> None:
    """After kills, stalls, refusals and settlements, no key is without expiry, and each counter's slots are counted from the epoch."""
    subject = acme(requests_per_minute=30, tokens_per_day=2_000, concurrent_turns=9, micros_per_month=10**6)
    async with RedisStore(server.url) as store:
        quota = quota_on(store)
        for number in range(40):
            if number in (10, 20):
                server.restart()
            if number == 30:
                server.stall()
            try:
                hold = await quota.reserve([subject], ask(f"turn-{number}"))
                await hold.extend(5)
                if number % 3:
                    await hold.settle(Amounts(1, 10, number))
            except Exception:
                await asyncio.sleep(0.1)
            server.resume()
        await until(lambda: store.pending == 0)
        keys = [key async for key in admin.scan_iter()]
        assert keys
        assert all([await admin.pttl(key) > 0 for key in keys])
        day = "tidegate:{quota}:tenant:acme:tokens_per_day"
        assert {int(slot) for slot in await admin.hkeys(day)} <= {int(time.time() // 3_600) - back for back in range(2)}


async def test_settling_twice_refunds_once(server: RedisServer, admin: Redis) -> None:
    """By the same hold, at once, from another router, and by a reservation that arrives after its settlement."""
    subject, bounds = acme(tokens_per_day=1_000), acme(tokens_per_day=1_000).bounds
    async with RedisStore(server.url, deadline_s=PATIENT_S) as store, RedisStore(server.url, deadline_s=PATIENT_S) as other:
        for number in range(100):
            hold = await quota_on(store).reserve([subject], ask(f"turn-{number}"))
            hold.count(1)
            endings = (hold.settle(hold.read_counted()), hold.settle(Amounts()), store.settle(f"turn-{number}", bounds, Amounts(1, 10, 1)))
            await asyncio.gather(*endings, other.settle(f"turn-{number}", bounds, Amounts(1, 10, 1)))
            await other.reserve(f"turn-{number}", bounds, Amounts(1, 10, 50), Amounts)
            assert await read_used(admin, "tokens_per_day") == 11
            await admin.flushdb()


def _percentile(samples: list[float], share: float) -> float:
    return sorted(samples)[min(int(len(samples) * share), len(samples) - 1)]


async def _time_turns(quota: StoredQuota, subject: Subject, number: int) -> tuple[list[float], int]:
    """Seconds that each decision took, and how many were granted and settled."""
    times, granted = [], 0
    for turn in range(number):
        begin = time.monotonic()
        try:
            hold = await quota.reserve([subject], ask(f"timed-{turn}"))
        except (QuotaExceeded, RouterError):
            times.append(time.monotonic() - begin)
        else:
            times.append(time.monotonic() - begin)
            granted += 1
            await hold.settle(Amounts(1, 10, 5))
    return times, granted


@pytest.mark.parametrize("fault", [RedisServer.stall, RedisServer.kill])
async def test_a_decision_never_waits(server: RedisServer, fault: Callable[[RedisServer], None]) -> None:
    """Redis stalls or dies: each of fifty decisions is there within 100 ms, refused when closed and by this router's share when open."""
    subject = acme(requests_per_minute=20)
    async with RedisStore(server.url) as store:
        fault(server)
        times, granted = await _time_turns(quota_on(FailClosed(store)), subject, 50)
        assert (_percentile(times, 0.99) < DECISION_S, granted) == (True, 0)
        times, granted = await _time_turns(quota_on(FailOpen(store, MemoryStore(), routers=2)), subject, 50)
        assert (_percentile(times, 0.99) < DECISION_S, granted) == (True, 10)
        server.resume() if fault is RedisServer.stall else server.restart()
        await until(lambda: store.pending == 0)


async def test_what_ran_while_redis_stalled_is_charged_once(server: RedisServer, admin: Redis) -> None:
    """A turn from before the stall, one granted here and one refused: afterwards the window holds exactly what was produced."""
    subject = acme(output_tokens_per_minute=1_000, requests_per_minute=100, concurrent_turns=50)
    async with RedisStore(server.url, deadline_s=0.3) as store:
        opened, closed = quota_on(FailOpen(store, MemoryStore(), routers=1)), quota_on(FailClosed(store))
        async with await closed.reserve([subject], ask("before")) as before:
            server.stall()
            before.count(50)
            assert await before.extend(20)
            before.count(20)
            with pytest.raises(RouterError, match="cannot be checked"):
                await closed.reserve([subject], ask("refused"))
            async with await opened.reserve([subject], ask("meanwhile")) as meanwhile:
                meanwhile.count(4)
        assert store.pending
        server.resume()
        await until(lambda: store.pending == 0)
        assert [await read_used(admin, name) for name in ("output_tokens_per_minute", "requests_per_minute")] == [74, 2]
        assert await admin.zcard("tidegate:{quota}:tenant:acme:concurrent_turns") == 0


async def test_a_redis_that_forgot_is_told_what_was_used(server: RedisServer, admin: Redis) -> None:
    """It is killed and comes back empty, scripts and all, while a turn runs: the turn goes on and is charged whole."""
    subject = acme(output_tokens_per_minute=1_000)
    async with RedisStore(server.url, deadline_s=PATIENT_S) as store:
        async with await quota_on(store).reserve([subject], ask("turn")) as hold:
            server.restart()
            hold.count(50)
            assert await hold.extend(20)
            hold.count(11)
        await until(lambda: store.pending == 0)
        assert await read_used(admin, "output_tokens_per_minute") == 61


@pytest.mark.parametrize("options", [("--rename-command", "SCRIPT", ""), ("--user", "default", "on", "nopass", "~*", "+@all", "-script")])
async def test_a_redis_without_scripts_is_refused_at_start(server: RedisServer, options: tuple[str, ...]) -> None:
    """Limits that are not shared would be multiplied by the routers, so the router does not start, and says why."""
    server.restart(*options)
    with pytest.raises(StoreRefused, match="must be up and allow SCRIPT LOAD"):
        async with RedisStore(server.url):
            pass


async def test_a_redis_that_is_away_is_refused_at_start(server: RedisServer) -> None:
    """Nothing can be proved then."""
    server.kill()
    with pytest.raises(StoreRefused, match="ConnectionError"):
        async with RedisStore(server.url):
            pass


async def test_two_routers_share_one_limit(server: RedisServer) -> None:
    """Twenty requests spread over both: their joint limit passes."""
    subject = acme(requests_per_minute=7)
    async with RedisStore(server.url, deadline_s=PATIENT_S) as one, RedisStore(server.url, deadline_s=PATIENT_S) as two:
        granted = 0
        for number in range(20):
            try:
                await (await quota_on((one, two)[number % 2]).reserve([subject], ask(f"turn-{number}"))).settle(Amounts(1, 10, 1))
                granted += 1
            except QuotaExceeded as refused:
                assert refused.retry_after_s is not None
                assert 0 < refused.retry_after_s <= 62
        assert granted == 7


async def test_a_cancelled_caller_still_settles(server: RedisServer, admin: Redis) -> None:
    """The task is cancelled while it settles: the settlement goes through."""
    subject = acme(output_tokens_per_minute=1_000, concurrent_turns=1)
    async with RedisStore(server.url, deadline_s=PATIENT_S) as store:
        hold = await quota_on(store).reserve([subject], ask("turn"))
        task = asyncio.create_task(hold.settle(Amounts(1, 10, 3)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: _has(admin, "output_tokens_per_minute", 3))

"""Load booked through a real Redis: routers that come at once, die or stand still, and a server that stalls or forgets."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from typing import Any

import pytest
from redis.asyncio import Redis

from router.redis.scripts import StoreRefused
from router.routing.offer import Offer
from router.routing.redis_book import RedisBook
from tests.unit.router.quota.redis_server import RedisServer, RouterProcess

pytestmark = pytest.mark.slow  # real servers and processes, and leases in real time

WORKERS = "abcd"
LEASE_S = 1.0
PATIENT_S = 5.0
"""A deadline for tests that are not about deadlines."""

ROUTER = """
import asyncio, sys
from router.routing.offer import Offer
from router.routing.redis_book import RedisBook

async def main(url, turns):
    async with RedisBook(url, "small", lease_s=1.0, deadline_s=5.0) as book:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        offers = [Offer(worker, turn_s=0.01) for worker in "abcd"]
        placed = await asyncio.gather(*(book.place(offers) for _ in range(int(turns))))
        print(*(booking.offer.worker for booking in placed), flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main(*sys.argv[1:]))
"""


def make_book(server: RedisServer, deadline_s: float = PATIENT_S) -> RedisBook:
    return RedisBook(server.url, "small", lease_s=LEASE_S, deadline_s=deadline_s)


async def read_turns(admin: Any) -> Counter[str]:
    """Turns booked on each worker by routers whose lease holds."""
    turns: Counter[str] = Counter()
    seconds, micros = await admin.time()
    for router in await admin.zrangebyscore("tidegate:{book:small}:routers", f"({seconds * 1000 + micros // 1000}", "+inf"):
        for field, count in (await admin.hgetall(router)).items():
            if field.endswith("\nturns"):
                turns[field[0]] += int(count)
    return turns


async def wait_for_turns(admin: Redis, expected: dict[str, int], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while (turns := await read_turns(admin)) != expected:
        assert time.monotonic() < deadline, turns
        await asyncio.sleep(0.01)


def loads(workers: str) -> list[Offer]:
    return [Offer(worker, turn_s=0.01) for worker in workers]


async def test_four_routers_spread_what_comes_at_once_and_a_dead_ones_bookings_vanish(server: RedisServer, admin: Redis) -> None:
    """Sixty-four arrivals over four workers, sixteen at each router; then one router is killed."""
    routers = [RouterProcess(ROUTER, server.url, "16") for _ in range(4)]
    try:
        assert [router.read_line() for router in routers] == ["ready"] * 4
        for router in routers:
            router.go_on()
        chosen = [router.read_line().split() for router in routers]
        total = Counter(worker for workers in chosen for worker in workers)
        assert sum(total.values()) == 64
        assert max(total.values()) - min(total.values()) <= 2
        assert await read_turns(admin) == total
        routers[0].kill()
        await wait_for_turns(admin, total - Counter(chosen[0]), within_s=LEASE_S + 0.5)
    finally:
        for router in routers:
            router.kill()


async def test_a_dead_routers_bookings_no_longer_count_in_choices(server: RedisServer) -> None:
    """They keep others away until the lease has ended, and not a moment longer than that."""
    dead = RouterProcess(ROUTER, server.url, "8")
    assert dead.read_line() == "ready"
    dead.go_on()
    dead.read_line()
    offers = [Offer("a", turn_s=1.0), Offer("other", fixed_s=0.5)]
    async with make_book(server) as book:
        (await book.place(offers)).close()
        dead.kill()
        killed, chosen = time.monotonic(), ""
        while chosen != "a" and time.monotonic() < killed + LEASE_S + 0.5:
            booking = await book.place(offers)
            chosen = booking.offer.worker
            booking.close()
            await asyncio.sleep(0.02)
        assert chosen == "a"


async def test_a_router_that_stood_still_books_again(server: RedisServer, admin: Redis) -> None:
    """It is taken for dead meanwhile; when it goes on its turns count again."""
    slow = RouterProcess(ROUTER, server.url, "4")
    try:
        assert slow.read_line() == "ready"
        slow.go_on()
        chosen = Counter(slow.read_line().split())
        slow.send(signal.SIGSTOP)
        await wait_for_turns(admin, {}, within_s=LEASE_S + 0.5)
        slow.send(signal.SIGCONT)
        await wait_for_turns(admin, chosen, within_s=2.0)
    finally:
        slow.kill()


async def test_a_redis_that_forgot_is_told_again(server: RedisServer, admin: Redis) -> None:
    """It is killed and comes back empty, scripts and all."""
    async with make_book(server) as book:
        bookings = [await book.place(loads("a")) for _ in range(3)]
        server.restart()
        bookings[0].close()
        await wait_for_turns(admin, {"a": 2}, within_s=2.0)
        for booking in bookings:
            booking.close()
        await wait_for_turns(admin, {}, within_s=2.0)


async def test_without_redis_a_router_chooses_by_its_own_bookings(server: RedisServer, admin: Redis) -> None:
    """Redis stalls: choices go on, spread over the workers, none waits longer than the deadline; afterwards Redis has what was booked."""
    async with make_book(server, deadline_s=0.05) as book:
        server.stall()
        times, bookings = [], []
        for _ in range(8):
            begin = time.monotonic()
            bookings.append(await book.place(loads(WORKERS)))
            times.append(time.monotonic() - begin)
        assert Counter(booking.offer.worker for booking in bookings) == dict.fromkeys(WORKERS, 2)
        assert max(times) < 0.2
        server.resume()
        await wait_for_turns(admin, dict.fromkeys(WORKERS, 2), within_s=3.0)


async def test_a_cancelled_choice_leaves_nothing(server: RedisServer, admin: Redis) -> None:
    """Whether Redis had booked it or not."""
    async with make_book(server) as book:
        for wait_s in (0, 0, 0.0002, 0.0005, 0.001):
            task = asyncio.create_task(book.place(loads("a")))
            await asyncio.sleep(wait_s)
            task.cancel()
            for result in await asyncio.gather(task, return_exceptions=True):
                if not isinstance(result, BaseException):
                    result.close()
        await wait_for_turns(admin, {}, within_s=2.0)


async def test_nothing_is_left_of_a_router_that_stopped(server: RedisServer, admin: Redis) -> None:
    """Not even until the lease ends; and every key has an end."""
    async with make_book(server) as book:
        await book.place(loads("a"))
        keys = [key async for key in admin.scan_iter()]
        assert len(keys) == 2
        assert all([0 < await admin.pttl(key) <= LEASE_S * 1000 for key in keys])
    assert [key async for key in admin.scan_iter()] == []


async def test_a_redis_that_is_away_is_refused_at_start(server: RedisServer) -> None:
    """Routers that cannot see each other's load would herd, so the router says so when it starts."""
    server.kill()
    with pytest.raises(StoreRefused):
        async with make_book(server):
            pass

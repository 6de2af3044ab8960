"""The book in Redis chooses as the one in memory does."""

from __future__ import annotations

import asyncio

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.routing.book import Booking, MemoryBook
from router.routing.offer import Offer
from router.routing.redis_book import RedisBook
from tests.budget import examples
from tests.unit.router.quota.redis_server import RedisServer

WORKERS = [f"10.0.0.{number}:8001" for number in range(4)]


def make_book(server: RedisServer, pool: str) -> RedisBook:
    return RedisBook(server.url, pool, deadline_s=5.0)


seconds = st.floats(0, 2)
counts = st.integers(0, 50)
offers = st.builds(
    Offer,
    st.just(""),
    fixed_s=seconds,
    turn_s=seconds,
    token_s=seconds,
    wait_s=seconds,
    slots=counts,
    pressure_s=seconds,
    turns=counts,
    used_blocks=counts,
    total_blocks=counts,
    new_tokens=counts,
    blocks=counts,
    cached_tokens=counts,
)
steps = st.lists(
    st.one_of(
        st.lists(offers, min_size=1, max_size=4).map(lambda them: [it._replace(worker=WORKERS[at]) for at, it in enumerate(them)]),
        st.tuples(st.sampled_from(["end_prefill", "close"]), st.integers(0, 20)),
    ),
    max_size=15,
)


@settings(max_examples=examples(0.3), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, data=st.data())
async def test_redis_chooses_as_memory_does(server: RedisServer, steps: list[list[Offer] | tuple[str, int]], data: st.DataObject) -> None:
    """The same offers get the same worker, whichever of two routers asks: the script is the arithmetic of offer.py."""
    memory = MemoryBook()
    pool = str(data.draw(st.uuids()))
    async with make_book(server, pool) as one, make_book(server, pool) as two:
        bookings: list[tuple[Booking, Booking]] = []
        for number, step in enumerate(steps):
            if isinstance(step, list):
                bookings.append((await memory.place(step), await (one, two)[number % 2].place(step)))
                assert bookings[-1][0].offer == bookings[-1][1].offer
            elif bookings:
                for booking in bookings[step[1] % len(bookings)]:
                    getattr(booking, step[0])()
                await asyncio.sleep(0.02)


async def test_arrivals_at_four_routers_do_not_herd(server: RedisServer) -> None:
    """Sixty-four at the same moment over four workers: each gets sixteen."""
    books = [make_book(server, "herd") for _ in range(4)]
    equal = [Offer(worker, turn_s=0.01) for worker in WORKERS]
    async with books[0], books[1], books[2], books[3]:
        placed = await asyncio.gather(*(books[number % 4].place(equal) for number in range(64)))
        chosen = [booking.offer.worker for booking in placed]
        assert [chosen.count(worker) for worker in WORKERS] == [16] * 4

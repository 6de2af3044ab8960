"""Choosing and booking in one step."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.routing.book import Booking, MemoryBook
from router.routing.offer import NOTHING, Booked, Offer, cost_of, pick


def test_the_cheapest_is_picked_and_of_equal_ones_the_first() -> None:
    """What is booked is part of the price."""
    offers = [Offer("a", turn_s=1.0), Offer("b", turn_s=1.0), Offer("c", fixed_s=1.5, turn_s=1.0)]
    assert pick(offers, {}).worker == "a"
    assert pick(offers, {"a": Booked(1)}).worker == "b"
    assert pick(offers, {"a": Booked(2), "b": Booked(3)}).worker == "c"


@pytest.mark.parametrize(
    ("offer", "booked", "cost"),
    [
        (Offer("a", fixed_s=2.0), Booked(5, 5, 5), 2.0),
        (Offer("a", turn_s=0.5), Booked(3), 1.5),
        (Offer("a", turn_s=0.5, turns=4), Booked(3), 2.0),
        (Offer("a", token_s=0.01), Booked(1, 200), 2.0),
        (Offer("a", wait_s=1.0, slots=4), Booked(3), 0.0),
        (Offer("a", wait_s=1.0, slots=4), Booked(6), 3.0),
        (Offer("a", pressure_s=0.1, total_blocks=100, blocks=10), Booked(1, 0, 40), 0.1),
        (Offer("a", pressure_s=0.1, total_blocks=100, blocks=10, used_blocks=70), Booked(1, 0, 40), 0.4),
        (Offer("a", pressure_s=0.1, total_blocks=100, blocks=500), NOTHING, 9.9),
        (Offer("a", pressure_s=0.1, blocks=500), NOTHING, 0.0),
    ],
)
def test_each_part_of_a_price(offer: Offer, booked: Booked, cost: float) -> None:
    """Of what the worker tells and what is booked the larger counts; without known blocks there is no pressure; a full cache is dear, not
    infinite."""
    assert cost_of(offer, booked) == pytest.approx(cost)


@given(first=st.integers(0, 1000), second=st.integers(0, 1000))
def test_pressure_is_convex(first: int, second: int) -> None:
    """The same block costs more the fuller the cache is."""
    low, high = sorted((first, second))
    offer = Offer("a", pressure_s=1.0, total_blocks=1200)
    steps = [cost_of(offer, Booked(1, 0, at + 10)) - cost_of(offer, Booked(1, 0, at)) for at in (low, high)]
    assert 0 <= steps[0] <= steps[1] + 1e-9


async def test_a_booking_ends_in_two_steps() -> None:
    """The prompt's tokens wait no more when the first token came; the rest goes when the turn ends. Each once."""
    book = MemoryBook()
    booking = await book.place([Offer("a", new_tokens=100, blocks=5)])
    assert dict(book.booked) == {"a": Booked(1, 100, 5)}
    for _ in range(2):
        booking.end_prefill()
        assert dict(book.booked) == {"a": Booked(1, 0, 5)}
    for _ in range(2):
        booking.close()
        booking.end_prefill()
        assert dict(book.booked) == {}


async def test_a_turn_that_ends_early_gives_back_everything() -> None:
    """Before its first token too."""
    book = MemoryBook()
    (await book.place([Offer("a", new_tokens=100, blocks=5)])).close()
    assert dict(book.booked) == {}


async def test_turns_that_come_at_once_do_not_herd() -> None:
    """Sixty-four equal ones spread evenly over four workers."""
    book = MemoryBook()
    offers = [Offer(worker, turn_s=0.01) for worker in "abcd"]
    bookings: list[Booking] = await asyncio.gather(*(book.place(offers) for _ in range(64)))
    assert {worker: load.turns for worker, load in book.booked.items()} == dict.fromkeys("abcd", 16)
    for booking in bookings:
        booking.close()
    assert dict(book.booked) == {}

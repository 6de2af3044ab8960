"""The book of load: which worker each turn is booked on, from the moment it is chosen to its end.

Choosing and booking are one step. Turns that come at the same moment therefore see each other, and do not all go to the worker that was
the least loaded before any of them came. In one router that is a call without a wait, as here; for several see redis_book.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from router.routing.offer import NOTHING, Booked, Offer, pick

OnChange = Callable[[str, Booked, int], None]
"""Takes a worker, a load, and 1 or -1: that load came or went."""


class Sums(dict[str, Booked]):
    """Booked load by worker; those without any are not in it."""

    def change(self, worker: str, load: Booked, sign: int) -> None:
        """Adds a load, or takes it away."""
        self[worker] = self.get(worker, NOTHING).plus(load, sign)
        if self[worker] == NOTHING:
            del self[worker]


class Booking:
    """A turn's load on the worker that it was given. Close it in `finally`."""

    __slots__ = ("_load", "_on_change", "offer")

    def __init__(self, offer: Offer, on_change: OnChange) -> None:
        self.offer = offer
        self._load = offer.load
        self._on_change = on_change
        on_change(offer.worker, self._load, 1)

    def end_prefill(self) -> None:
        """The first token came: the prompt waits no more."""
        self._give_back(Booked(0, self._load.new_tokens, 0))

    def close(self) -> None:
        """The turn has ended or leaves the worker. Does nothing the second time."""
        self._give_back(self._load)

    def _give_back(self, load: Booked) -> None:
        if load != NOTHING:
            self._load = self._load.plus(load, -1)
            self._on_change(self.offer.worker, load, -1)


class Book(Protocol):
    """Where load is booked."""

    async def place(self, offers: Sequence[Offer]) -> Booking:
        """Takes the cheapest offer, of at least one, and books it. Never fails and never waits long."""

    @property
    def booked(self) -> Mapping[str, Booked]:
        """What this router has booked."""


class MemoryBook:
    """Implements Book for a single router."""

    def __init__(self) -> None:
        self._sums = Sums()

    async def place(self, offers: Sequence[Offer]) -> Booking:
        """See Book."""
        return Booking(pick(offers, self._sums), self._sums.change)

    @property
    def booked(self) -> Mapping[str, Booked]:
        """See Book."""
        return self._sums

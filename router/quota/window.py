"""Sliding windows in integers: what is used, whether more fits, and if not, when it will. No clock is read here.

A window of length W is cut into slots of equal length and each amount is booked into the slot of its moment. A slot counts until W has
passed since its *end*. So all that was booked in the last W is always counted, and no interval of length W, wherever it begins, holds more
than the limit; a token bucket of the same size and rate would let twice the limit through one. The price is that an amount may count for
up to one slot longer than W.

A refund goes back to the slot it came from, or nowhere when that slot counts no more. So a refund never makes room that was not taken,
and what is left is never more than the limit. Scripts in lua/ do the same arithmetic; a test compares the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """`slots` slots of `slot_ms` milliseconds."""

    slot_ms: int
    slots: int

    def slot_of(self, at_ms: int) -> int:
        """The slot that a moment lies in."""
        return at_ms // self.slot_ms

    def oldest_slot(self, now_ms: int) -> int:
        """The first slot that still counts."""
        return now_ms // self.slot_ms - self.slots

    def end_ms(self, slot: int) -> int:
        """The first moment at which a slot counts no more."""
        return (slot + self.slots + 1) * self.slot_ms


MINUTE = Window(slot_ms=2_000, slots=30)
DAY = Window(slot_ms=3_600_000, slots=24)
MONTH = Window(slot_ms=86_400_000, slots=30)


class Counter:
    """What is booked in one window. `now_ms` never goes back from call to call."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._slots: dict[int, int] = {}
        self._used = 0
        self._holds_until_ms = math.inf

    def count_used(self, now_ms: int) -> int:
        """The sum of all slots that count."""
        if now_ms >= self._holds_until_ms:
            self._drop_passed(now_ms)
        return self._used

    def book(self, at_ms: int, amount: int, now_ms: int) -> None:
        """Adds an amount to the slot of `at_ms`: now's, or for a refund, which is negative, the one that it was booked in."""
        slot = self._window.slot_of(at_ms)
        if slot >= self._window.oldest_slot(now_ms):
            if not self._slots:
                self._holds_until_ms = self._window.end_ms(slot)
            self._slots[slot] = self._slots.get(slot, 0) + amount
            self._used += amount

    def find_wait_ms(self, limit: int, ask: int, now_ms: int) -> int | None:
        """How long until `ask` fits when nobody else books: 0 is now, None is never because it is more than the limit itself."""
        if ask > limit:
            return None
        used = self.count_used(now_ms)
        if used + ask <= limit:
            return 0
        for slot, amount in self._slots.items():
            used -= amount
            if used + ask <= limit:
                return self._window.end_ms(slot) - now_ms
        raise AssertionError("an empty window takes whatever is within the limit")

    def _drop_passed(self, now_ms: int) -> None:
        oldest = self._window.oldest_slot(now_ms)
        # Slots are made in the order of time, so those that have passed are the first.
        while self._slots and (slot := next(iter(self._slots))) < oldest:
            self._used -= self._slots.pop(slot)
        self._holds_until_ms = self._window.end_ms(next(iter(self._slots))) if self._slots else math.inf

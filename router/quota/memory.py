"""Counters in the process, for a single router. Nothing awaits within a decision, so one event loop makes each of them atomic.

A decision comes under some sixteen bounds and is asked for twice a turn, so what is done for each bound is little: one pass finds that
all of them grant, a second one books. Only when one refuses is it worked out which refuses longest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from router.quota.booking import Booking, find_changes
from router.quota.limits import Amounts, Bound, Bounds
from router.quota.store import TURN_RETRY_MS, Granted, Refused
from router.quota.window import Counter


def read_clock_ms() -> int:
    """Milliseconds that never go back."""
    return time.monotonic_ns() // 1_000_000


class _Turns:
    """Turns at once: a Counter that no time passes for."""

    def __init__(self) -> None:
        self._count = 0

    def count_used(self, now_ms: int) -> int:
        return self._count

    def book(self, at_ms: int, amount: int, now_ms: int) -> None:
        self._count += amount

    def find_wait_ms(self, limit: int, ask: int, now_ms: int) -> int | None:
        if not limit:
            return None
        return 0 if self._count + ask <= limit else TURN_RETRY_MS


@dataclass(frozen=True, slots=True)
class _Hold:
    bounds: Bounds
    bookings: list[Booking]


class MemoryStore:
    """Implements Store. Counters whose windows have passed are dropped whenever new ones are made."""

    def __init__(self, clock_ms: Callable[[], int] = read_clock_ms) -> None:
        self._clock_ms = clock_ms
        self._counters: dict[str, Counter | _Turns] = {}
        self._holds: dict[str, _Hold] = {}

    @property
    def holds(self) -> int:
        """Holds that are not settled."""
        return len(self._holds)

    @property
    def counters(self) -> int:
        """Windows in memory, and subjects with turns that run."""
        return len(self._counters)

    async def reserve(self, hold_id: str, bounds: Bounds, amounts: Amounts, read_counted: Callable[[], Amounts]) -> Granted | Refused:
        """See Store."""
        now_ms = self._clock_ms()
        if hold_id in self._holds:
            return Granted()
        asks = amounts.by_metric(turns=1)
        decision = self._decide(bounds, asks, now_ms)
        if isinstance(decision, Granted):
            self._holds[hold_id] = _Hold(bounds, [Booking(now_ms, amounts)])
            self._book(bounds, now_ms, asks, now_ms)
        return decision

    async def extend(self, hold_id: str, bounds: Bounds, more: Amounts) -> Granted | Refused:
        """See Store; a hold that is settled or was never granted gets nothing booked."""
        now_ms = self._clock_ms()
        hold = self._holds.get(hold_id)
        if hold is None:
            return Granted()
        asks = more.by_metric()
        decision = self._decide(bounds, asks, now_ms)
        if isinstance(decision, Granted):
            hold.bookings.append(Booking(now_ms, more))
            self._book(hold.bounds, now_ms, asks, now_ms)
        return decision

    async def settle(self, hold_id: str, bounds: Bounds, actual: Amounts) -> None:
        """See Store."""
        now_ms = self._clock_ms()
        hold = self._holds.pop(hold_id, None)
        if hold is None:
            return
        for change in find_changes(hold.bookings, actual, now_ms):
            self._book(hold.bounds, change.at_ms, change.amounts.by_metric(), now_ms)
        self._book(hold.bounds, now_ms, Amounts().by_metric(turns=-1), now_ms)

    def count_used(self, bound: Bound) -> int:
        """What a bound counts now."""
        counter = self._counters.get(bound.key)
        return counter.count_used(self._clock_ms()) if counter else 0

    def _decide(self, bounds: Bounds, asks: Sequence[int], now_ms: int) -> Granted | Refused:
        """What the bounds say to so much of each metric; nothing is booked yet."""
        left = []
        for bound in bounds:
            counter = self._counters.get(bound.key)
            ask = asks[bound.rule.place]
            room = bound.limit - ask - (counter.count_used(now_ms) if counter else 0)
            if room < 0 and ask:
                return self._refuse(bounds, asks, now_ms)
            left.append(room if room > 0 else 0)
        return Granted(tuple(left))

    def _refuse(self, bounds: Bounds, asks: Sequence[int], now_ms: int) -> Refused:
        """By the bound that will refuse longest."""
        waits = []
        for bound in bounds:
            ask = asks[bound.rule.place]
            counter = self._counters.get(bound.key) or _make_counter(bound)
            wait_ms = counter.find_wait_ms(bound.limit, ask, now_ms) if ask else 0
            if wait_ms is None:
                return Refused(bound, None)
            waits.append(wait_ms)
        longest = max(waits)
        return Refused(bounds[waits.index(longest)], longest)

    def _book(self, bounds: Bounds, at_ms: int, amounts: Sequence[int], now_ms: int) -> None:
        for bound in bounds:
            amount = amounts[bound.rule.place]
            if amount:
                counter = self._counters.get(bound.key) or self._add_counter(bound, now_ms)
                counter.book(at_ms, amount, now_ms)

    def _add_counter(self, bound: Bound, now_ms: int) -> Counter | _Turns:
        # Two old ones for each that is new, in turn: one that still counts goes to the end of the line.
        for _ in range(min(2, len(self._counters))):
            key = next(iter(self._counters))
            counter = self._counters.pop(key)
            if counter.count_used(now_ms):
                self._counters[key] = counter
        counter = self._counters[bound.key] = _make_counter(bound)
        return counter


def _make_counter(bound: Bound) -> Counter | _Turns:
    return Counter(bound.rule.window) if bound.rule.window else _Turns()

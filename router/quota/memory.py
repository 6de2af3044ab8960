"""Counters in the process, for a single router. Nothing awaits within a decision, so one event loop makes each of them atomic."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from router.quota.booking import Booking, find_changes
from router.quota.limits import Amounts, Bound
from router.quota.store import TURN_RETRY_MS, Granted, Refused
from router.quota.window import Counter, Window


def read_clock_ms() -> int:
    """Milliseconds that never go back."""
    return time.monotonic_ns() // 1_000_000


class MemoryStore:
    """Implements Store. Counters whose windows have passed are dropped whenever new ones are made."""

    def __init__(self, clock_ms: Callable[[], int] = read_clock_ms) -> None:
        self._clock_ms = clock_ms
        self._counters: dict[str, Counter] = {}
        self._turns: dict[str, set[str]] = {}
        self._holds: dict[str, list[Booking]] = {}

    @property
    def holds(self) -> int:
        """Holds that are not settled."""
        return len(self._holds)

    @property
    def counters(self) -> int:
        """Windows in memory."""
        return len(self._counters)

    async def reserve(
        self, hold_id: str, bounds: Sequence[Bound], amounts: Amounts, read_counted: Callable[[], Amounts]
    ) -> Granted | Refused:
        """See Store."""
        now_ms = self._clock_ms()
        if hold_id in self._holds:
            return Granted()
        if refused := self._find_refusal(bounds, amounts, now_ms, turns=1):
            return refused
        self._holds[hold_id] = []
        self._book(hold_id, bounds, Booking(now_ms, amounts), now_ms)
        for bound in bounds:
            if not bound.rule.window:
                self._turns.setdefault(bound.key, set()).add(hold_id)
        return self._grant(bounds, now_ms)

    async def extend(self, hold_id: str, bounds: Sequence[Bound], more: Amounts) -> Granted | Refused:
        """See Store; a hold that is settled or was never granted gets nothing booked."""
        now_ms = self._clock_ms()
        if refused := self._find_refusal(bounds, more, now_ms, turns=0):
            return refused
        if hold_id in self._holds:
            self._book(hold_id, bounds, Booking(now_ms, more), now_ms)
        return self._grant(bounds, now_ms)

    async def settle(self, hold_id: str, bounds: Sequence[Bound], actual: Amounts) -> None:
        """See Store."""
        if hold_id not in self._holds:
            return
        now_ms = self._clock_ms()
        for change in find_changes(self._holds[hold_id], actual, now_ms):
            self._book(hold_id, bounds, change, now_ms)
        del self._holds[hold_id]
        for bound in bounds:
            if not bound.rule.window:
                self._end_turn(bound.key, hold_id)

    def count_used(self, bound: Bound) -> int:
        """What a bound counts now."""
        return self._count_used(bound, self._clock_ms())

    def _find_refusal(self, bounds: Sequence[Bound], amounts: Amounts, now_ms: int, turns: int) -> Refused | None:
        worst: Refused | None = None
        for bound in bounds:
            wait_ms = self._find_wait_ms(bound, amounts.of(bound.rule.metric) if bound.rule.window else turns, now_ms)
            if wait_ms is None:
                return Refused(bound, None)
            if wait_ms > ((worst and worst.wait_ms) or 0):
                worst = Refused(bound, wait_ms)
        return worst

    def _find_wait_ms(self, bound: Bound, ask: int, now_ms: int) -> int | None:
        if not ask:
            return 0
        if bound.rule.window:
            return self._counter(bound.key, bound.rule.window, now_ms).find_wait_ms(bound.limit, ask, now_ms)
        if not bound.limit:
            return None
        return 0 if len(self._turns.get(bound.key, ())) < bound.limit else TURN_RETRY_MS

    def _book(self, hold_id: str, bounds: Sequence[Bound], booking: Booking, now_ms: int) -> None:
        self._holds[hold_id].append(booking)
        for bound in bounds:
            amount = booking.amounts.of(bound.rule.metric)
            if amount and bound.rule.window:
                self._counter(bound.key, bound.rule.window, now_ms).book(booking.at_ms, amount, now_ms)

    def _grant(self, bounds: Sequence[Bound], now_ms: int) -> Granted:
        return Granted(tuple(max(0, bound.limit - self._count_used(bound, now_ms)) for bound in bounds))

    def _count_used(self, bound: Bound, now_ms: int) -> int:
        if not bound.rule.window:
            return len(self._turns.get(bound.key, ()))
        counter = self._counters.get(bound.key)
        return counter.count_used(now_ms) if counter else 0

    def _counter(self, key: str, window: Window, now_ms: int) -> Counter:
        counter = self._counters.get(key)
        if not counter:
            self._drop_passed(now_ms)
            counter = self._counters[key] = Counter(window)
        return counter

    def _end_turn(self, key: str, hold_id: str) -> None:
        turns = self._turns.get(key, set())
        turns.discard(hold_id)
        if not turns:
            self._turns.pop(key, None)

    def _drop_passed(self, now_ms: int) -> None:
        # Two old ones for each that is new, in turn: one that still counts goes to the end of the line.
        for _ in range(min(2, len(self._counters))):
            key = next(iter(self._counters))
            counter = self._counters.pop(key)
            if counter.count_used(now_ms):
                self._counters[key] = counter

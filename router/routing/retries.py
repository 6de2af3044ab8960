"""A budget for second tries: a share of the requests of late, so that an outage is not made worse by everybody asking again. Pure.

In any window at most `share` of the requests that began in it, and `reserve` more, may be tried again (the retry budget of Finagle and
linkerd). The reserve is for times of few requests, and should be no less than what one worker runs at once, so that its loss alone never
uses up the budget. The window moves in slots, a tenth of it each.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

_SLOTS = 10


@dataclass(slots=True)
class _Slot:
    number: int
    requests: int = 0
    retries: int = 0


class RetryBudget:
    """The budget of one model's workers."""

    def __init__(self, *, share: float = 0.2, reserve: int = 64, window_s: float = 10.0) -> None:
        self._share = share
        self._reserve = reserve
        self._slot_s = window_s / _SLOTS
        self._slots: deque[_Slot] = deque()

    def count_request(self, now: float) -> None:
        """A request begins; second tries are none."""
        self._slot(now).requests += 1

    def take(self, now: float) -> bool:
        """Whether a request may be tried again; if so, it is counted."""
        slot = self._slot(now)
        requests, retries = (sum(counts) for counts in zip(*((it.requests, it.retries) for it in self._slots), strict=True))
        if retries + 1 > self._reserve + self._share * requests:
            return False
        slot.retries += 1
        return True

    def _slot(self, now: float) -> _Slot:
        number = int(now / self._slot_s)
        if not self._slots or self._slots[-1].number < number:
            self._slots.append(_Slot(number))
        while self._slots[0].number <= number - _SLOTS:
            self._slots.popleft()
        return self._slots[-1]

"""How long an answer will probably be: the 0.75 quantile of the latest answers of the same tenant and model.

The quantile is exact over the last 64 answers, so it needs no step size, forgets a workload that has changed, and one outlier moves it by
at most one rank.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque

_ANSWERS = 64
_QUANTILE = 0.75


class _Recent:
    """The latest lengths, in order of arrival and in order of size."""

    def __init__(self) -> None:
        self._arrived: deque[int] = deque()
        self._sorted: list[int] = []

    def add(self, length: int) -> None:
        if len(self._arrived) == _ANSWERS:
            del self._sorted[bisect_left(self._sorted, self._arrived.popleft())]
        self._arrived.append(length)
        insort(self._sorted, length)

    def quantile(self) -> int:
        return self._sorted[min(int(len(self._sorted) * _QUANTILE), len(self._sorted) - 1)]


class OutputEstimator:
    """Learned lengths by tenant and model; the least recently used pairs are forgotten beyond `capacity`."""

    def __init__(self, *, default: int = 256, capacity: int = 4096) -> None:
        self._default = default
        self._capacity = capacity
        self._recent: OrderedDict[tuple[str, str], _Recent] = OrderedDict()

    def estimate(self, tenant: str, model: str) -> int:
        """Output tokens to expect; the default while nothing is known."""
        recent = self._recent.get((tenant, model))
        return recent.quantile() if recent else self._default

    def learn(self, tenant: str, model: str, output_tokens: int) -> None:
        """Takes the length of an answer. Empty ones say nothing: the turn failed or was cancelled first."""
        if output_tokens:
            recent = self._recent.setdefault((tenant, model), _Recent())
            self._recent.move_to_end((tenant, model))
            recent.add(output_tokens)
            if len(self._recent) > self._capacity:
                self._recent.popitem(last=False)

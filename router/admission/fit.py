"""Small online statistics: a least-squares fit that follows drift, and quantiles of the latest values."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from operator import mul

_OUTLIER = 4.0
"""An error counts at most as this many usual errors, so that one stalled turn does not move the fit."""

_USUAL_RATE = 0.05


class Regression:
    """Recursive least squares with exponential forgetting (Haykin, Adaptive Filter Theory, ch. 10) and clipped errors.

    Features should be near 1 in size. `prior` are the coefficients to begin with; `doubt` is how far, in their own unit, they may be off.
    """

    def __init__(self, prior: Sequence[float], doubt: float = 1.0, memory: float = 0.99) -> None:
        size = len(prior)
        self._weights = list(prior)
        self._covariance = [[doubt**2 * (row == column) for column in range(size)] for row in range(size)]
        self._most = doubt**2 * size
        self._memory = memory
        self._usual: float | None = None

    @property
    def weights(self) -> Sequence[float]:
        """The coefficients."""
        return self._weights

    def predict(self, features: Sequence[float]) -> float:
        """The value for these features; never negative."""
        return max(0.0, _dot(self._weights, features))

    def observe(self, features: Sequence[float], value: float) -> None:
        """Learns that the features gave this value."""
        gain = [_dot(row, features) for row in self._covariance]
        scale = self._memory + _dot(gain, features)
        error = self._clip(value - _dot(self._weights, features)) / scale
        self._weights = [weight + g * error for weight, g in zip(self._weights, gain, strict=True)]
        reduced = [[p - g * h / scale for p, h in zip(row, gain, strict=True)] for row, g in zip(self._covariance, gain, strict=True)]
        # Without news in some direction forgetting would let its covariance grow without end.
        grow = 1 / self._memory if sum(row[at] for at, row in enumerate(reduced)) < self._most else 1.0
        self._covariance = [[p * grow for p in row] for row in reduced]

    def _clip(self, error: float) -> float:
        usual = self._usual
        if usual is None:
            self._usual = abs(error)
            return error
        clipped = math.copysign(min(abs(error), _OUTLIER * usual), error) if usual else error
        # The usual error may grow by clipped steps only, yet it grows: a lasting change is learnt, a single stall is not.
        self._usual = usual + _USUAL_RATE * (abs(clipped) - usual)
        return clipped


class Quantiles:
    """Quantiles of the latest values; those of `prior` until there are enough. Conservative, as in split conformal prediction."""

    def __init__(self, prior: Sequence[float], size: int = 256, enough: int = 20) -> None:
        self._latest: deque[float] = deque()
        self._sorted = sorted(prior)
        self._size = size
        self._enough = enough
        self._learnt = False

    @property
    def learnt(self) -> bool:
        """Whether the values are observed ones."""
        return self._learnt

    def add(self, value: float) -> None:
        """Takes a value; the oldest goes when there are too many."""
        self._latest.append(value)
        if not self._learnt:
            self._learn()
            return
        insort(self._sorted, value)
        if len(self._latest) > self._size:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]

    def at(self, share: float) -> float:
        """The value that this share of all values does not exceed."""
        place = math.ceil((len(self._sorted) + 1) * share) - 1
        return self._sorted[min(max(place, 0), len(self._sorted) - 1)]

    def _learn(self) -> None:
        if len(self._latest) >= self._enough:
            self._sorted = sorted(self._latest)
            self._learnt = True


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    products: float = sum(map(mul, left, right))
    return products

"""How much longer than expected each worker takes: a slower GPU, a hot one, or one with a noisy neighbour."""

from __future__ import annotations

import math

_RATE = 0.1
_MOST = math.log(4)


class Paces:
    """The paces of one model's workers; 1 is as the time model says, which is what they take on average."""

    def __init__(self) -> None:
        self._logs: dict[str, float] = {}

    def observe(self, worker: str, actual_s: float, expected_s: float) -> None:
        """A turn took a worker this long. One that was four times off counts as much as one that was a hundred times off."""
        if actual_s > 0 and expected_s > 0:
            off = min(_MOST, max(-_MOST, math.log(actual_s / expected_s)))
            known = self._logs.get(worker, 0.0)
            self._logs[worker] = known + _RATE * (off - known)

    def read(self, worker: str) -> float:
        """The worker's pace."""
        return math.exp(self._logs.get(worker, 0.0))

    def forget(self, worker: str) -> None:
        """The worker has gone."""
        self._logs.pop(worker, None)

"""Whether a failed turn is tried again.

Only what the router says may be tried again is, after the time that it names, and only while the caller has got nothing of the answer. All
turns of a client share a budget besides: in an outage, when no turn completes, it is soon used up, and the client tries each turn once.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from grpc import StatusCode

from tidegate.errors import TidegateError

LONGEST_WAIT_S = 10.0
"""A router that asks for more time than this is not waited for: the caller is told."""

_SPREAD = 0.2
"""Callers who failed together come back apart: up to this share of the wait is added."""


@dataclass(slots=True)
class Budget:
    """Tries that a client has beyond each turn's first: `most` at the beginning, and one more for each ten turns that complete."""

    most: float = 50.0
    left: float = 50.0

    def take(self) -> bool:
        """Whether there was one."""
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True

    def earn(self) -> None:
        """A turn has completed."""
        self.left = min(self.most, self.left + 0.1)


@dataclass(slots=True)
class Tries:
    """How often one turn may still be tried."""

    left: int
    budget: Budget

    def wait_s(self, error: Exception, time_left_s: float) -> float | None:
        """Seconds until the next try; None when there is none."""
        if not isinstance(error, TidegateError) or error.retry_after is None or error.code not in _RETRIED:
            return None
        wait_s = error.retry_after * (1.0 + _SPREAD * random.random())
        if not self.left or wait_s > LONGEST_WAIT_S or wait_s >= time_left_s or not self.budget.take():
            return None
        self.left -= 1
        return wait_s


_RETRIED = (StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED)

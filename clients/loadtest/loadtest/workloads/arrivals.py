"""When requests arrive, independent of the server: an open loop.

Arrivals are a renewal process of mean gap 1 in "work", the expected number of arrivals so far, mapped to time through the rate's integral.
So bursts and changing rates combine: gamma gaps of any coefficient of variation on any ramp (at 1 it is a Poisson process, exactly so with
changing rates too).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time in which the rate, in requests a second, goes linearly from `first` to `last`."""

    seconds: float
    first: float
    last: float

    @property
    def arrivals(self) -> float:
        """Expected number of arrivals."""
        return self.seconds * (self.first + self.last) / 2

    def time_of(self, work: float) -> float:
        """When `work` arrivals are expected to have come; at most `arrivals`."""
        slope = (self.last - self.first) / self.seconds
        return 2 * work / (self.first + math.sqrt(max(0.0, self.first**2 + 2 * slope * work)))


def parse_rate(text: str, seconds: float) -> list[Segment]:
    """`20` is steady, `5..50` a ramp, `5,10,20` steps of equal length. Raises ValueError."""
    try:
        if ".." in text:
            first, last = map(float, text.split(".."))
            segments = [Segment(seconds, first, last)]
        else:
            rates = [float(part) for part in text.split(",")]
            segments = [Segment(seconds / len(rates), rate, rate) for rate in rates]
    except ValueError:
        raise ValueError(f"{text}: a rate is 20, 5..50 or 5,10,20") from None
    if seconds <= 0 or any(min(segment.first, segment.last) < 0 or not segment.arrivals for segment in segments):
        raise ValueError(f"{text}: rates and durations must be above zero")
    return segments


def arrival_times(segments: Sequence[Segment], burstiness: float, draw: random.Random) -> Iterator[float]:
    """Seconds from the start, rising, to the end of the last segment.

    `burstiness` is the coefficient of variation of the gaps: 0 evenly spaced, 1 Poisson, 3 heavy bursts.
    """
    work = begin = 0.0
    for gap in _gaps(burstiness, draw):
        work += gap
        while segments and work > segments[0].arrivals:
            work -= segments[0].arrivals
            begin += segments[0].seconds
            segments = segments[1:]
        if not segments:
            return
        yield begin + segments[0].time_of(work)


def _gaps(burstiness: float, draw: random.Random) -> Iterator[float]:
    """Gaps of mean 1. The gamma distribution's shape is 1 / cv²."""
    while True:
        yield draw.gammavariate(burstiness**-2, burstiness**2) if burstiness else 1.0

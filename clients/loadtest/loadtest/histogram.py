"""Histograms of durations over many orders of magnitude, after Gil Tene's HdrHistogram: every octave has equally many buckets.

Written here because it is forty lines, needs no compiled package, and is kept whole in the JSON result, so that results can be drawn and
compared later. A value is known to 0.1 %, half a bucket, from nanoseconds to hours; memory grows with the number of different buckets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

BUCKETS_PER_OCTAVE = 512


class Histogram:
    """Counts values above zero in logarithmic buckets; zero and below count as zero."""

    def __init__(self, values: Iterable[float] = ()) -> None:
        self.count = 0
        self.total = 0.0
        self.low = math.inf
        self.high = 0.0
        self._zeros = 0
        self._buckets: Counter[int] = Counter()
        for value in values:
            self.add(value)

    def add(self, value: float) -> None:
        """Counts one value."""
        value = max(value, 0.0)
        self.count += 1
        self.total += value
        self.low, self.high = min(self.low, value), max(self.high, value)
        if value > 0:
            self._buckets[_bucket_of(value)] += 1
        else:
            self._zeros += 1

    @property
    def mean(self) -> float:
        """Exact; NaN when empty."""
        return self.total / self.count if self.count else math.nan

    def percentile(self, share: float) -> float | None:
        """The smallest value that `share` of all do not exceed (nearest rank); None when there are too few values to tell it from the
        largest: a p99.9 needs a thousand."""
        if not self.count or (share > 0.5 and self.count * (1 - share) < 1 - 1e-9):
            return None
        rank = max(1, math.ceil(self.count * share - 1e-9))
        for value, count in self.bars():
            rank -= count
            if rank <= 0:
                return min(max(value, self.low), self.high)
        return self.high

    def bars(self) -> Iterator[tuple[float, int]]:
        """The middle of each bucket that is not empty and its count, rising."""
        if self._zeros:
            yield 0.0, self._zeros
        for bucket in sorted(self._buckets):
            yield _middle_of(bucket), self._buckets[bucket]


def _bucket_of(value: float) -> int:
    mantissa, exponent = math.frexp(value)
    return exponent * BUCKETS_PER_OCTAVE + int((mantissa * 2 - 1) * BUCKETS_PER_OCTAVE)


def _middle_of(bucket: int) -> float:
    exponent, step = divmod(bucket, BUCKETS_PER_OCTAVE)
    return math.ldexp((1 + (step + 0.5) / BUCKETS_PER_OCTAVE) / 2, exponent)

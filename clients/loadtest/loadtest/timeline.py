"""A run second by second."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from loadtest.histogram import Histogram
from loadtest.record import Outcome, Record
from loadtest.result import Slice
from loadtest.runner import Run

SLICES = 60


def draw_timeline(run: Run) -> list[Slice]:
    """From the first moment that is measured to the last event, in about sixty slices."""
    records = [record for record in run.records if record.due >= run.begin]
    last = max((record.ended or record.due for record in records), default=run.begin)
    width = max(0.1, (max(run.end, last) - run.begin) / SLICES)

    def slice_of(moment: float) -> int:
        return int((moment - run.begin) / width)

    due = Counter(slice_of(record.due) for record in records)
    ended = _count_ended(records, slice_of)
    tokens = _spread_tokens(records, slice_of)
    ttft = _collect_ttft(records, slice_of)
    slices, running = [], 0
    for at in range(max((*due, *ended[True], *ended[False]), default=-1) + 1):
        running += due[at] - ended[True][at] - ended[False][at]
        times = ttft[at]
        high = times.high if times.count else None
        slices.append(
            Slice(at * width, due[at], ended[True][at], ended[False][at], tokens[at], running, times.percentile(0.5), high),
        )
    return slices


def _count_ended(records: Iterable[Record], slice_of: Callable[[float], int]) -> dict[bool, Counter[int]]:
    """Endings by whether they were completions."""
    counts: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
    for record in records:
        if record.ended is not None:
            counts[record.outcome is Outcome.COMPLETED][slice_of(record.ended)] += 1
    return counts


def _spread_tokens(records: Iterable[Record], slice_of: Callable[[float], int]) -> defaultdict[int, float]:
    tokens: defaultdict[int, float] = defaultdict(float)
    for record in records:
        for at in record.arrivals:
            tokens[slice_of(at)] += record.tokens / len(record.arrivals)
    return tokens


def _collect_ttft(records: Iterable[Record], slice_of: Callable[[float], int]) -> defaultdict[int, Histogram]:
    ttft: defaultdict[int, Histogram] = defaultdict(Histogram)
    for record in records:
        if record.arrivals:
            ttft[slice_of(record.due)].add(record.arrivals[0] - record.due)
    return ttft

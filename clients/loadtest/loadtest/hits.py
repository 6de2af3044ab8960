"""How much of the prompts came from KV caches, where the engine does not say.

The router tells with each turn's start what it expects to be cached (`started.cached_tokens`). It may be wrong, and the clock knows: a
token that is cached costs no prefill. Looked at are turns that had their worker to themselves from their start to their first token, for
beside other turns time passes for other reasons. Of those that the router calls cold the median time by prompt token is the price of a new
token; what the others took beyond the price of their new tokens, they took for those that the router calls cached. Where that is a tenth of
the price, a tenth of them was not cached after all. Whatever else takes time counts against the cache too: the share errs on the low side.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.record import Outcome, Record

COLD = 0.05
"""A turn is cold when at most this share of its prompt is expected to be cached."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """One turn: tokens of its prompt, those of them that were expected to be cached, and seconds from its start to its first token."""

    prompt: int
    expected: int
    seconds: float
    alone: bool = True

    @property
    def is_cold(self) -> bool:
        """Whether next to nothing was expected."""
        return self.expected <= COLD * self.prompt


@dataclass(frozen=True, slots=True)
class Hits:
    """`expected` is the share of all prompt tokens that the router expected to be cached, `timed` what the clock leaves of it.

    `token_s` is the time of a new token, and `cached_cost` that of one called cached as a share of it, by the median of `witnesses` turns.
    They are None without turns that tell.
    """

    turns: int
    cold: int
    expected: float
    token_s: float | None
    witnesses: int
    cached_cost: float | None

    @property
    def timed(self) -> float | None:
        """The share that was cached by the clock."""
        return None if self.cached_cost is None else self.expected * (1 - min(1.0, max(0.0, self.cached_cost)))


def measure_hits(turns: Sequence[Prefill], warm_up: Sequence[Prefill] = ()) -> Hits:
    """Of at least one turn. Those of the warm-up are looked at for the price of tokens only."""
    alone = [turn for turn in (*warm_up, *turns) if turn.alone]
    token_s = _median([turn.seconds / turn.prompt for turn in alone if turn.is_cold])
    costs = [] if token_s is None else [_price_cached(turn, token_s) for turn in alone if not turn.is_cold]
    expected = sum(turn.expected for turn in turns) / sum(turn.prompt for turn in turns)
    return Hits(len(turns), sum(turn.is_cold for turn in turns), expected, token_s, len(costs), _median(costs))


def read_prefills(records: Sequence[Record]) -> list[Prefill]:
    """Those of the turns that completed."""
    done = [it for it in records if it.outcome is Outcome.COMPLETED and it.usage and it.started is not None and it.arrivals]
    return [_read(record, done) for record in done]


def _price_cached(turn: Prefill, token_s: float) -> float:
    """The time of a token that is called cached, as a share of a new one's."""
    return (turn.seconds / token_s - (turn.prompt - turn.expected)) / turn.expected


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _read(record: Record, others: Sequence[Record]) -> Prefill:
    assert record.usage is not None and record.started is not None, "completed"  # noqa: PT018
    begin, end = record.started, record.arrivals[0]
    alone = not any(it.worker == record.worker and it is not record and _overlaps(it, begin, end) for it in others)
    return Prefill(record.usage.prompt, record.expected, end - begin, alone)


def _overlaps(record: Record, begin: float, end: float) -> bool:
    assert record.started is not None, "completed"
    return record.started < end and record.arrivals[-1] > begin

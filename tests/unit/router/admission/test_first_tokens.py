"""First tokens under an engine that takes more turns at once than it can serve in time: who begins, who goes down, what is predicted."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest

from router.admission.entry import Entry, QueueLimits
from router.degradation.ladder import Ladder, Rung
from router.errors import TidegateError
from tests.unit.router.admission.engine import Arrival, Engine

SLO = 1.0
OVERLOAD = 6.0
"""Turns a second, three times what the engine can do."""


class Degrading(Engine):
    """Sends down what its ladder does not keep, and counts that and what it refuses."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ladder = Ladder(self.limits.slo_s)
        self.fates: dict[str, int] = {"downgrade": 0, "refuse": 0}
        self.may_downgrade = True
        self.watched: list[tuple[float, float]] = []

    def _arrive(self, arrival: Arrival) -> None:
        self.watched.append((self.now, self.turnstile.predict_first_token(self.now)))
        try:
            here = self.turnstile.foresee(arrival.entry, self.now)
        except TidegateError as error:
            assert error.retry_after_s
            self.fates["refuse"] += 1
            return
        if self.ladder.decide(here, 0.5, self.now, has_lower=self.may_downgrade) is Rung.DOWNGRADE:
            self.fates["downgrade"] += 1
        else:
            super()._arrive(arrival)

    def first_tokens(self, from_s: float = 0.0) -> list[float]:
        """Times to the first token of turns that came from a time on, in order."""
        return [o.first_s - o.arrival.at_s for o in self.outcomes.values() if o.first_s is not None and o.arrival.at_s >= from_s]


def slow_engine(limits: QueueLimits = QueueLimits(), slots: int = 64) -> Degrading:  # noqa: B008 - frozen
    """Takes many turns at once, and bears a few within the SLO."""
    return Degrading(slots=slots, prefill_s=1e-3, sequence_s=0.02, limits=limits)


def come(seconds: float, per_second: float, start: float = 0.0) -> Iterator[Arrival]:
    dice, now = random.Random(1), start
    while (now := now + dice.expovariate(per_second)) < start + seconds:
        yield Arrival(now, Entry(dice.choice("abc"), dice.randint(50, 150), 20), dice.randint(10, 30))


def p99(values: list[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def test_free_slots_of_an_engine_past_its_capacity_are_no_reason_to_stay() -> None:
    """At three times its capacity turns go down, first tokens of the others come within the SLO, and the engine is not left idle."""
    engine = slow_engine(QueueLimits(slo_s=SLO))
    engine.play(list(come(120.0, OVERLOAD)))
    assert engine.fates["downgrade"] > 0.4 * 120 * OVERLOAD
    assert p99(engine.first_tokens()) <= 1.2 * SLO
    assert len(engine.first_tokens()) > 120


def test_what_may_not_go_down_is_refused_with_a_time_when_the_wait_would_be_too_long() -> None:
    """The longest wait bounds what the queue adds; the engine's own part stays within the SLO."""
    engine = slow_engine(QueueLimits(slo_s=SLO, longest_wait_s=SLO))
    engine.may_downgrade = False
    engine.play(list(come(120.0, OVERLOAD)))
    refused = [ticket.refusal for ticket in engine.outcomes if ticket.refusal]
    assert engine.fates["refuse"] + len(refused) > 0.4 * 120 * OVERLOAD
    assert all(refusal.retry_after_s for refusal in refused)
    begun = [o.first_s - o.begun_s for o in engine.outcomes.values() if o.first_s is not None and o.begun_s is not None]
    assert p99(begun) <= SLO


def test_the_prediction_is_high_within_ten_seconds_of_an_overload() -> None:
    """Though slots are free: without an SLO everything is taken, and first tokens take seconds."""
    engine = slow_engine(slots=1000)
    engine.play([*come(30.0, 0.5), *come(30.0, OVERLOAD, 30.0)])
    actual = sum(engine.first_tokens(40.0)) / len(engine.first_tokens(40.0))
    predicted = [seconds for now, seconds in engine.watched if now > 40.0]
    assert sum(predicted) / len(predicted) == pytest.approx(actual, rel=0.5)
    assert actual > 1.0


def test_an_overload_that_is_over_leaves_no_trace_in_the_prediction() -> None:
    """The model that runs nothing answers as it did before, and that is predicted, whether or not anybody has come since."""
    engine = slow_engine()
    engine.play(list(come(30.0, 0.2)))
    before = engine.turnstile.predict_first_token(engine.now)
    engine.play(list(come(30.0, OVERLOAD, engine.now)))
    assert engine.turnstile.predict_first_token(engine.now) == pytest.approx(before, rel=0.3)


def test_a_first_token_that_is_overdue_counts_before_it_comes() -> None:
    """An engine that hangs is not predicted to answer at once."""
    engine = slow_engine()
    engine.turnstile.arrive(Entry("a", 100, 20), 0.0)
    assert engine.turnstile.predict_first_token(10.0) > 9.0

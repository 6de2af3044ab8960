"""Arrivals: at the rate that was asked for, as bursty as asked for, and the same for the same seed."""

from __future__ import annotations

import random
import statistics
from itertools import pairwise

import pytest
from loadtest.workloads.arrivals import Segment, arrival_times, parse_rate


def times(rate: str, seconds: float, burstiness: float = 1.0, seed: int = 1) -> list[float]:
    return list(arrival_times(parse_rate(rate, seconds), burstiness, random.Random(seed)))


@pytest.mark.parametrize("burstiness", [0.0, 0.5, 1.0, 3.0])
def test_the_rate_and_the_burstiness_are_those_asked_for(burstiness: float) -> None:
    """The gaps have the mean and the coefficient of variation."""
    gaps = [later - earlier for earlier, later in pairwise(times("100", 200, burstiness))]
    assert statistics.mean(gaps) == pytest.approx(0.01, rel=0.06)
    assert statistics.pstdev(gaps) / statistics.mean(gaps) == pytest.approx(burstiness, rel=0.06, abs=1e-6)


def test_an_even_ramp_is_exact() -> None:
    """From 0 to 10 a second in 10 seconds: fifty arrivals, the n-th at sqrt(2n)."""
    assert times("0..10", 10, burstiness=0) == pytest.approx([(2 * n) ** 0.5 for n in range(1, 51)])


def test_a_falling_ramp_falls() -> None:
    """More come in its first half than in its second, in the ratio of the areas."""
    came = times("100..0", 100)
    assert sum(at < 50 for at in came) / len(came) == pytest.approx(0.75, abs=0.03)


def test_steps_are_of_equal_length() -> None:
    """`10,40,20` over 30 seconds."""
    came = times("10,40,20", 30, burstiness=0)
    assert [sum(begin < at <= begin + 10 for at in came) for begin in (0, 10, 20)] == [100, 400, 200]


def test_the_same_seed_gives_the_same_times() -> None:
    """And another gives others."""
    assert times("50", 5) == times("50", 5)
    assert times("50", 5) != times("50", 5, seed=2)


def test_times_rise_and_end_with_the_load() -> None:
    """None lies behind the last segment."""
    came = times("5..50", 4, burstiness=3)
    assert came == sorted(came)
    assert 0 <= came[0] <= came[-1] <= 4


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "1..", "5,0", "1..2..3"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    """With what would be one."""
    with pytest.raises(ValueError, match="rate"):
        parse_rate(text, 10)


def test_a_segment_knows_when_its_work_is_done() -> None:
    """At its end, all of it."""
    segment = Segment(8, 3, 7)
    assert segment.time_of(segment.arrivals) == pytest.approx(8)

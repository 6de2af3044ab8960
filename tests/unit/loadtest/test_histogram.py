"""Histograms: as good as the values themselves, to 0.1 %."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loadtest.histogram import Histogram


@given(st.lists(st.floats(1e-9, 1e5), min_size=1, max_size=200), st.sampled_from([0.1, 0.5, 0.9]))
def test_percentiles_are_those_of_the_sorted_values(values: list[float], share: float) -> None:
    """By nearest rank, within half a bucket."""
    told = Histogram(values).percentile(share)
    if told is not None:
        assert told == pytest.approx(sorted(values)[math.ceil(len(values) * share - 1e-9) - 1], rel=1 / 1024)


def test_high_percentiles_of_many_values() -> None:
    """p99 and p99.9 of a heavy tail."""
    draw = random.Random(1)
    values = [draw.paretovariate(1.5) / 100 for _ in range(20_000)]
    histogram = Histogram(values)
    for share in (0.5, 0.9, 0.99, 0.999):
        assert histogram.percentile(share) == pytest.approx(sorted(values)[math.ceil(len(values) * share) - 1], rel=0.001)


@pytest.mark.parametrize(("count", "share", "known"), [(99, 0.99, False), (100, 0.99, True), (999, 0.999, False), (1000, 0.999, True)])
def test_a_percentile_needs_enough_values(count: int, share: float, known: bool) -> None:
    """The p99 of ninety values would be their largest under another name, so there is none."""
    assert (Histogram(range(1, count + 1)).percentile(share) is not None) is known


def test_an_empty_histogram_has_no_percentile() -> None:
    """Nor a mean."""
    assert Histogram().percentile(0.5) is None
    assert math.isnan(Histogram().mean)


def test_one_value_is_its_own_median() -> None:
    """Exactly: percentiles stay within the smallest and the largest."""
    assert Histogram([0.123]).percentile(0.5) == 0.123


def test_zeros_count() -> None:
    """Tokens of one burst may arrive at the same moment; clocks may step back by a hair."""
    histogram = Histogram([0.0, -1e-12, 0.0, 2.0])
    assert histogram.percentile(0.5) == 0
    assert [count for _, count in histogram.bars()] == [3, 1]

"""Learned answer lengths."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.quota.estimate import OutputEstimator


def test_what_is_unknown_is_the_default() -> None:
    """Until an answer of that tenant and model has been seen; empty answers say nothing."""
    estimator = OutputEstimator(default=99)
    estimator.learn("acme", "small", 0)
    estimator.learn("acme", "other", 5)
    assert estimator.estimate("acme", "small") == 99


@given(st.lists(st.integers(1, 4_000), min_size=1, max_size=200))
def test_three_of_four_answers_are_within_the_estimate(lengths: list[int]) -> None:
    """Of the latest 64, at least three quarters, and the estimate is one of them."""
    estimator = OutputEstimator()
    for length in lengths:
        estimator.learn("acme", "small", length)
    latest = lengths[-64:]
    estimate = estimator.estimate("acme", "small")
    assert estimate in latest
    assert sum(length <= estimate for length in latest) >= 0.75 * len(latest)


def test_pairs_are_bounded() -> None:
    """The pair that was used longest ago is forgotten first."""
    estimator = OutputEstimator(default=1, capacity=2)
    for tenant in ("a", "b", "a", "c"):
        estimator.learn(tenant, "small", 50)
    assert [estimator.estimate(tenant, "small") for tenant in "abc"] == [50, 1, 50]

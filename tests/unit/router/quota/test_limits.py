"""The words of quotas: missing and zero, prices in whole numbers, bookings that come to what was used."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.quota.booking import Booking, find_changes, sum_up
from router.quota.limits import METRICS, RULES, Amounts, Limits, Price, Subject, SubjectKind, join_bounds

counts = st.integers(0, 10_000)
amounts = st.builds(Amounts, counts, counts, counts, counts)
bookings = st.lists(st.builds(Booking, st.integers(0, 1_000), amounts), max_size=6)


def test_missing_is_no_limit_and_zero_is_one() -> None:
    """Only limits that are set bound a subject, and zero is set."""
    subject = Subject(SubjectKind.USER, "acme/ann", Limits(tokens_per_day=0))
    assert [(bound.key, bound.limit) for bound in subject.bounds] == [("user:acme/ann:tokens_per_day", 0)]
    assert not Subject(SubjectKind.USER, "acme/ann", Limits()).bounds


def test_the_same_subjects_have_the_same_bounds() -> None:
    """So that what stores work out about them serves the next turn; others of the same name have their own."""
    subjects = [Subject(kind, "acme", Limits(tokens_per_day=9, concurrent_turns=2)) for kind in SubjectKind]
    bounds = join_bounds(tuple(subjects))
    assert [bound for subject in subjects for bound in subject.bounds] == list(bounds)
    assert join_bounds(tuple(subjects)) is bounds
    assert join_bounds(tuple(Subject(each.kind, each.id, each.limits) for each in subjects)) is not bounds


def test_the_smallest_limit_is_known() -> None:
    """Of each metric that is limited, whoever's it is; zero is the smallest."""
    subjects = [Subject(SubjectKind.TENANT, "acme", Limits(tokens_per_day=9)), Subject(SubjectKind.USER, "ann", Limits(tokens_per_day=0))]
    assert join_bounds(tuple(subjects)).least == {"tokens": 0}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_limit_is_not_negative(rule: object) -> None:
    """Each of them is refused below zero."""
    with pytest.raises(ValueError, match="must not be negative"):
        Limits(**{rule.name: -1})  # type: ignore[attr-defined]


def test_tokens_are_input_and_output() -> None:
    """The daily limit counts both; turns are no part of what was used."""
    by_metric = dict(zip(METRICS, Amounts(1, 30, 12, 5).by_metric(turns=1), strict=True))
    assert by_metric == {"requests": 1, "input_tokens": 30, "output_tokens": 12, "tokens": 42, "micros": 5, "turns": 1}


@given(st.integers(0, 10**7), st.integers(1, 10**7), st.integers(0, 10**6), st.integers(0, 10**9))
def test_affordable_output_is_the_most_that_fits(input_price: int, output_price: int, input_tokens: int, micros: int) -> None:
    """It costs no more than the money, and one token more would."""
    price = Price(input_price, output_price)
    most = price.affordable_output(micros, input_tokens)
    assert most is not None
    if most >= 0:
        assert price.cost(input_tokens, most) <= micros
    assert price.cost(input_tokens, max(most, -1) + 1) > micros


def test_output_that_costs_nothing_has_no_bound() -> None:
    """No money is needed for it."""
    assert Price(input_per_million=5).affordable_output(0, 100) is None


@given(bookings, amounts)
def test_changes_bring_bookings_to_what_was_used(booked: list[Booking], actual: Amounts) -> None:
    """Whatever was booked before; and nothing is given back that was not booked at that moment."""
    changes = find_changes(booked, actual, now_ms=2_000)
    assert sum_up([*booked, *changes]) == actual
    for at_ms in {change.at_ms for change in changes}:
        assert min(sum_up([each for each in [*booked, *changes] if each.at_ms == at_ms]).as_list()) >= 0


@given(bookings, amounts)
def test_changes_come_once(booked: list[Booking], actual: Amounts) -> None:
    """What already comes to what was used is left alone."""
    changed = [*booked, *find_changes(booked, actual, now_ms=2_000)]
    by_moment = [Booking(at_ms, sum_up([each for each in changed if each.at_ms == at_ms])) for at_ms in {each.at_ms for each in changed}]
    assert not find_changes(by_moment, actual, now_ms=3_000)

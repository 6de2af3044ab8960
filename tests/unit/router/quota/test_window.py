"""Sliding windows: never more than the limit in any interval, and the wait that is told is the true one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.quota.window import DAY, MINUTE, MONTH, Counter, Window

WINDOW = Window(slot_ms=10, slots=6)
LIMIT = 20

steps = st.lists(st.tuples(st.integers(0, 50), st.integers(1, LIMIT)), max_size=60)


@given(steps)
def test_no_interval_holds_more_than_the_limit(steps: list[tuple[int, int]]) -> None:
    """Wherever an interval of the window's length begins, what was granted in it is within the limit."""
    now_ms, counter, grants = 0, Counter(WINDOW), list[tuple[int, int]]()
    for pause_ms, ask in steps:
        now_ms += pause_ms
        if counter.find_wait_ms(LIMIT, ask, now_ms) == 0:
            counter.book(now_ms, ask, now_ms)
            grants.append((now_ms, ask))
    for begin, _ in grants:
        assert sum(ask for at_ms, ask in grants if begin <= at_ms < begin + 60) <= LIMIT


@given(steps, st.integers(1, LIMIT))
def test_the_wait_is_exact(steps: list[tuple[int, int]], ask: int) -> None:
    """After the wait the ask fits, and a millisecond earlier it does not; even when more than the limit was used."""
    now_ms, counter = 0, Counter(WINDOW)
    for pause_ms, amount in steps:
        now_ms += pause_ms
        counter.book(now_ms, amount, now_ms)
    wait_ms = counter.find_wait_ms(LIMIT, ask, now_ms)
    assert wait_ms is not None
    assert not wait_ms or counter.find_wait_ms(LIMIT, ask, now_ms + wait_ms - 1) == 1
    assert counter.find_wait_ms(LIMIT, ask, now_ms + wait_ms) == 0


def test_more_than_the_limit_never_fits() -> None:
    """It is told so, however empty the window is; of a limit of zero everything is more."""
    assert Counter(WINDOW).find_wait_ms(LIMIT, LIMIT + 1, 0) is None
    assert Counter(WINDOW).find_wait_ms(0, 1, 0) is None


@given(steps, st.integers(0, 200))
def test_a_refund_goes_back_to_its_slot_or_nowhere(steps: list[tuple[int, int]], pause_ms: int) -> None:
    """All that was booked is given back, sooner or later: what is used is then nothing, and never less than that."""
    now_ms, counter, booked = 0, Counter(WINDOW), list[tuple[int, int]]()
    for step_ms, amount in steps:
        now_ms += step_ms
        counter.book(now_ms, amount, now_ms)
        booked.append((now_ms, amount))
    now_ms += pause_ms
    for at_ms, amount in booked:
        counter.book(at_ms, -amount, now_ms)
        assert counter.count_used(now_ms) >= 0
    assert counter.count_used(now_ms) == 0


@pytest.mark.parametrize(("window", "length_ms"), [(MINUTE, 60_000), (DAY, 86_400_000), (MONTH, 30 * 86_400_000)])
def test_a_window_has_its_length(window: Window, length_ms: int) -> None:
    """What is booked counts for the window's length, and for at most one slot more."""
    counter = Counter(window)
    counter.book(0, 1, 0)
    assert counter.count_used(length_ms) == 1
    assert counter.count_used(length_ms + window.slot_ms) == 0

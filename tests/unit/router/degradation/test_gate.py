"""The gate: when a pool begins and stops to send turns down, and that callers do not see it change its mind."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from router.degradation.gate import Gate, Thresholds

THRESHOLDS = Thresholds()
ENTER, LEAVE, DWELL, CALM = THRESHOLDS.enter, THRESHOLDS.leave, THRESHOLDS.dwell_s, THRESHOLDS.calm_s
EASE = 2 * LEAVE - ENTER


def come(gate: Gate, level: float, now: float, hardness: float = 0.5) -> bool:
    """A turn comes; whether it goes down."""
    goes_down = level > gate.bar(hardness, now)
    gate.note(level, now, went_down=goes_down)
    return goes_down


def opened() -> Gate:
    gate = Gate()
    assert come(gate, 1.0, 0.0)
    return gate


def test_nobody_goes_down_until_a_turn_is_above_the_upper_threshold() -> None:
    """However hard or easy the turn is."""
    gate = Gate()
    assert not any(come(gate, ENTER, 0.0, hardness) for hardness in (0.0, 1.0))
    assert not gate.is_open(0.0)
    assert come(gate, ENTER + 0.01, 0.0, 1.0)
    assert gate.is_open(0.0)


def test_while_it_is_open_easy_turns_go_down_first() -> None:
    """Each by its own level; one that would begin soon keeps the large model."""
    gate = opened()
    assert not come(gate, EASE - 0.01, 1.0, 0.0)
    assert come(gate, LEAVE, 1.0, 0.4)
    assert not come(gate, LEAVE, 1.0, 0.6)
    assert not come(gate, ENTER - 0.01, 1.0, 1.0)
    assert come(gate, ENTER + 0.01, 1.0, 1.0)


def test_a_turn_that_cannot_go_down_opens_nothing() -> None:
    """The gate tells what callers see."""
    gate = Gate()
    gate.note(5.0, 0.0, went_down=False)
    assert not gate.is_open(0.0)


def test_it_closes_when_it_has_been_calm() -> None:
    """Not before its dwell is over, and not while any turn comes above the lower threshold, whether it went down or not."""
    gate, quiet = opened(), opened()
    gate.note(LEAVE + 0.1, DWELL - 1, went_down=False)
    assert gate.is_open(DWELL - 1 + CALM - 0.1)
    assert not gate.is_open(DWELL - 1 + CALM)
    assert quiet.is_open(DWELL - 0.1)
    assert not quiet.is_open(DWELL)


def test_it_opens_again_at_once() -> None:
    """Nobody is made to wait because the gate has just changed."""
    gate = opened()
    assert not gate.is_open(DWELL)
    assert come(gate, 1.0, DWELL)


@given(st.lists(st.tuples(st.floats(0.0, 40.0), st.floats(0.0, 3.0), st.floats(0.0, 1.0)), max_size=80))
def test_it_changes_less_than_twice_a_minute(turns: list[tuple[float, float, float]]) -> None:
    """In any time of more than a minute, whatever turns come. It is looked at each second, so that a change is seen at most that late."""
    gate, now, was_open = Gate(), 0.0, False
    changes: list[float] = []
    for pause, level, hardness in turns:
        for look in range(math.ceil(pause)):
            was_open = watch(gate, now + look, was_open, changes)
        now += pause
        come(gate, level, now, hardness)
        was_open = watch(gate, now, was_open, changes)
    for at, first in enumerate(changes):
        for count, last in enumerate(changes[at:], 1):
            assert count < 2 * max(62.0, last - first + 1) / 60
    openings = changes[::2]
    assert all(later - earlier >= DWELL for earlier, later in pairwise(openings))


def watch(gate: Gate, now: float, was_open: bool, changes: list[float]) -> bool:
    """Notes a change."""
    if gate.is_open(now) != was_open:
        changes.append(now)
    return gate.is_open(now)

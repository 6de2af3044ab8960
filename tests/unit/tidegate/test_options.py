"""A turn's options, as the router gets them."""

from __future__ import annotations

import pytest
from tidegate import TurnOptions
from tidegate.options import build_spec


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        (TurnOptions(deadline=30.0), 30.0),
        (TurnOptions(deadline=30.0, max_wait=2.5), 2.5),
        (TurnOptions(deadline=30.0, max_wait=0.0), 0.0),
        (TurnOptions(deadline=30.0, max_wait=None), 30.0),
    ],
)
def test_a_turn_may_wait_as_long_as_it_says_or_else_until_its_deadline(options: TurnOptions, seconds: float) -> None:
    """No time at all is a time: such a turn runs at once or not at all."""
    assert build_spec(["hi"], options, None).max_wait.ToTimedelta().total_seconds() == seconds


def test_without_either_the_router_decides() -> None:
    """Unset is not zero."""
    assert not build_spec(["hi"], TurnOptions(), None).HasField("max_wait")

"""What a turn that gets no place is told."""

from __future__ import annotations

import pytest

from router.admission import refusals
from router.errors import TidegateError


@pytest.mark.parametrize(
    "refusal",
    [
        refusals.queue_full(0.0),
        refusals.tenant_queue_full(1, 0.0),
        refusals.waited_too_long(0.0),
        refusals.deadline_passed(0.0),
        refusals.deadline_unreachable(0.0),
    ],
)
def test_a_refusal_tells_a_time_to_come_again_even_where_no_wait_is_predicted(refusal: TidegateError) -> None:
    """Zero is no time: clients take it for none, or come again at once."""
    assert refusal.retry_after_s is not None
    assert refusal.retry_after_s > 0

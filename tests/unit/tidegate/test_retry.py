"""Which failures are tried again, when, and how often at most."""

from __future__ import annotations

import math

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from tidegate import TidegateError
from tidegate.retry import Budget, Tries


def failure(code: grpc.StatusCode, retry_after_s: int | None = 1) -> TidegateError:
    status = Status(code=code.value[0])
    if retry_after_s is not None:
        status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=retry_after_s)))
    return TidegateError(status)


BUSY = failure(grpc.StatusCode.RESOURCE_EXHAUSTED)
DOWN = failure(grpc.StatusCode.UNAVAILABLE)


def test_a_turn_is_tried_three_times() -> None:
    """The router's time is waited, and up to a fifth more, so that callers do not come back together."""
    tries = Tries(2, Budget())
    waits = [tries.wait_s(error, math.inf) for error in (BUSY, DOWN, BUSY)]
    assert waits[2] is None
    assert all(wait is not None and 1.0 <= wait <= 1.2 for wait in waits[:2])


@pytest.mark.parametrize(
    "error",
    [
        failure(grpc.StatusCode.UNAVAILABLE, None),
        failure(grpc.StatusCode.INTERNAL),
        failure(grpc.StatusCode.INVALID_ARGUMENT),
        failure(grpc.StatusCode.UNAVAILABLE, 60),
        ValueError(),
    ],
    ids=["no time", "internal", "invalid", "a minute", "not ours"],
)
def test_other_failures_are_not_tried_again(error: Exception) -> None:
    """Neither when the router names no time, nor when waiting would be long."""
    assert Tries(2, Budget()).wait_s(error, math.inf) is None


def test_a_wait_must_fit_the_deadline() -> None:
    """What would come too late is not tried, and costs nothing of the budget."""
    budget = Budget()
    assert Tries(2, budget).wait_s(DOWN, 1.0) is None
    assert budget.left == budget.most


def test_all_turns_of_a_client_share_a_budget() -> None:
    """In an outage each turn is soon tried once only; completed turns earn tries, up to what there was."""
    budget = Budget(most=3.0, left=3.0)
    assert sum(Tries(2, budget).wait_s(DOWN, math.inf) is not None for _ in range(10)) == 3
    for _ in range(11):
        budget.earn()
    assert Tries(2, budget).wait_s(DOWN, math.inf) is not None
    assert Tries(2, budget).wait_s(DOWN, math.inf) is None
    for _ in range(100):
        budget.earn()
    assert budget.left == 3.0

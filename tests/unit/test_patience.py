"""Tests wait for conditions, not for a time, and assert no wall clock: what breaks that passes on a quiet machine only."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CLOCKS = {"monotonic", "perf_counter", "perf_counter_ns", "monotonic_ns"}

SLEEPS = {
    "bench/identity.py": (1, "polls for as long as the caller of it promises"),
    "bench/ledger_writer.py": (1, "a writer that is killed while it writes"),
    "bench/waiting.py": (1, "the one way to wait"),
    "conformance/serve.py": (2, "a table's own delay; left: a drain that has begun"),
    "contract/test_resume_refused.py": (1, "left: a drain that has begun"),
    "e2e/models/stock_tensorrt_llm/model.py": (1, "a slow engine"),
    "e2e/test_failover.py": (1, "left: answers under way"),
    "e2e/test_failures.py": (2, "left: turns under way"),
    "e2e/test_lanes.py": (2, "a router stands still for this long; left: the measure before it"),
    "e2e/test_launch.py": (1, "left: polls with its own deadline"),
    "fakes/tensorrt_llm/executor.py": (1, "a slow engine"),
    "faults/test_booking_redis.py": (3, "cuts at moments of a call; left: polls with its own deadline"),
    "faults/test_cancellation.py": (1, "left: prompts that are being tokenized"),
    "faults/test_hostile.py": (1, "a watch over the loop's pauses"),
    "faults/test_http_leaving.py": (1, "cuts at moments of an answer"),
    "faults/test_http_limits.py": (1, "left: the first half of a request was read"),
    "faults/test_identity.py": (1, "left: polls"),
    "faults/test_ledger_crash.py": (1, "an outage of this length"),
    "faults/test_load_harness.py": (3, "slow parsers; left: requests were sent"),
    "faults/test_moving_streams.py": (1, "left: a log that is behind"),
    "faults/test_quota_redis.py": (2, "outlives a lease by Redis's clock; left: Redis is back"),
    "faults/test_streams.py": (1, "left: a session's tasks had their turn"),
    "faults/test_two_routers.py": (1, "samples a queue while turns run"),
    "unit/loadtest/fakes.py": (2, "a slow server"),
    "unit/loadtest/test_accuracy.py": (1, "a slow server"),
    "unit/loadtest/test_kserve.py": (1, "a slow server"),
    "unit/loadtest/test_runner.py": (1, "a slow maker of prompts"),
    "unit/router/admission/test_queue.py": (1, "left: nothing ticks, for two ticks"),
    "unit/router/quota/redis_server.py": (1, "a thread that polls until Redis listens"),
    "unit/router/redis/test_scripts.py": (1, "an event loop that stands still"),
    "unit/router/routing/test_discovery.py": (2, "a resolver that hangs; left: nothing is told"),
    "unit/router/routing/test_redis_book.py": (1, "left: a booking's change has arrived"),
    "unit/router/store/test_queries.py": (1, "a task that is cancelled while it waits"),
    "unit/router/transport/test_turns.py": (2, "a turn with a slow end"),
    "unit/router/upstream/test_direct.py": (1, "a worker that says nothing"),
    "unit/server/engine/test_tensorrt_llm.py": (1, "a slow reader"),
    "unit/server/test_launch.py": (1, "left: polls with its own deadline"),
    "unit/tidegate/test_admin.py": (1, "left: polls"),
    "unit/tidegate/test_stream.py": (4, "left: what was dropped has ended, and retries that have begun"),
}
"""How many sleeps a file may have, and why. The word `left` marks what still waits for a time and should not."""

CLOCK_ASSERTS = {
    "bench/waiting.py": (1, "the one way to wait"),
    "e2e/test_failures.py": (1, "left: callers hear of a killed worker within 2 s"),
    "e2e/test_stock_worker.py": (2, "left: a cancel and a kill are heard of within 1 and 2 s"),
    "faults/test_booking_redis.py": (1, "left: polls with its own deadline"),
    "faults/test_two_routers.py": (1, "a revoked key is promised to be refused within a second"),
    "unit/router/quota/redis_server.py": (1, "a thread that polls until Redis listens"),
    "unit/router/test_choice.py": (1, "a moment between two readings of the clock, however slow"),
}
"""The same for asserts that read a clock."""


def count_sleeps(tree: ast.AST) -> int:
    """Calls of `sleep` for longer than nothing; `sleep(0)` lets others run and waits for no time."""
    return sum(_name_of(it.func) == "sleep" and not _is_zero(it) for it in ast.walk(tree) if isinstance(it, ast.Call))


def count_clock_asserts(tree: ast.AST) -> int:
    """Asserts that call a clock themselves."""
    asserted = (it.test for it in ast.walk(tree) if isinstance(it, ast.Assert))
    return sum(any(isinstance(it, ast.Call) and _name_of(it.func) in CLOCKS for it in ast.walk(test)) for test in asserted)


def _name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_zero(call: ast.Call) -> bool:
    return isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def trees() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(TESTS.rglob("*.py")):
        yield str(path.relative_to(TESTS)), ast.parse(path.read_text())


@pytest.mark.parametrize(("count", "allowed"), [(count_sleeps, SLEEPS), (count_clock_asserts, CLOCK_ASSERTS)])
def test_no_test_waits_for_a_time_or_asserts_one(count: Callable[[ast.AST], int], allowed: dict[str, tuple[int, str]]) -> None:
    """But for those that are named above, in both directions: who mends one takes it from the list."""
    found = {path: number for path, tree in trees() if (number := count(tree))}
    assert found == {path: number for path, (number, _) in allowed.items()}


def test_what_is_forbidden_is_found() -> None:
    """A sleep and a clock in an assert, however they were imported; a yield to others is neither."""
    tree = ast.parse(
        "sleep(1)\nasyncio.sleep(x)\nasyncio.sleep(0)\nassert time.monotonic() - a < 1\nassert perf_counter() < b\nassert a < b"
    )
    assert (count_sleeps(tree), count_clock_asserts(tree)) == (2, 2)

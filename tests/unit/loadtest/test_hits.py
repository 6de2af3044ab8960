"""The arithmetic of `make bench-routing`: hit shares by two witnesses, and the comparison."""

from __future__ import annotations

from typing import cast

import pytest
from loadtest.histogram import Histogram
from loadtest.hits import Hits, Prefill, measure_hits, read_prefills
from loadtest.record import Record, Usage
from loadtest.routing import Figures, compare, is_unequal, judge, make_conversations

COLD = [Prefill(500, 0, 1.0), Prefill(1000, 0, 2.0), Prefill(1000, 32, 9.0, alone=False)]


def test_a_hit_that_took_no_time_was_one() -> None:
    """2 ms a new token, as the cold turns tell: 600 tokens of which 500 are cached should take 200 ms."""
    hits = measure_hits([*COLD, Prefill(600, 500, 0.2), Prefill(600, 500, 0.2)])
    assert (hits.turns, hits.cold, hits.witnesses) == (5, 3, 2)
    assert hits.token_s == pytest.approx(0.002)
    assert hits.cached_cost == pytest.approx(0.0)
    assert hits.timed == hits.expected == pytest.approx(1032 / 3700)


def test_a_hit_that_took_a_prefill_was_none() -> None:
    """What the router called cached was not there; half of it, and half of the share counts."""
    assert measure_hits([*COLD, Prefill(600, 500, 1.2)]).timed == pytest.approx(0.0)
    half = measure_hits([*COLD, Prefill(600, 500, 0.7)])
    assert half.timed == pytest.approx(half.expected / 2)


def test_turns_beside_others_and_a_share_above_one_say_nothing() -> None:
    """Time passes for other reasons there; and a worker that was faster than its price has not cached more than all."""
    hits = measure_hits([*COLD, Prefill(600, 500, 9.0, alone=False)])
    assert (hits.witnesses, hits.timed) == (0, None)
    fast = measure_hits([*COLD, Prefill(600, 500, 0.001)])
    assert fast.timed == fast.expected
    assert measure_hits([Prefill(600, 500, 0.2)]).timed is None


def test_the_warm_up_witnesses_and_does_not_count() -> None:
    """Its turns were alone for certain, and are not part of the workload."""
    hits = measure_hits([Prefill(600, 500, 9.0, alone=False)], [*COLD, Prefill(600, 500, 0.2)])
    assert (hits.turns, hits.witnesses, hits.timed) == pytest.approx((1, 1, 500 / 600))


def record_of(worker: str, started: float, first: float, last: float, *, prompt: int = 100, expected: int = 0) -> Record:
    record = Record(0, "", started)
    record.start(started, worker, expected)
    record.arrive(first)
    record.arrive(last)
    record.usage = Usage(prompt, 2)
    record.complete(last)
    return record


def test_a_turn_is_alone_while_its_worker_runs_nothing_else() -> None:
    """From its start to its first token; turns on the other worker do not matter, nor does one that failed."""
    failed = Record(0, "", 0.0)
    failed.fail(1.0, "WORKER_LOST")
    records = [
        record_of("a", 0.0, 1.0, 3.0),
        record_of("b", 1.0, 2.0, 3.0, expected=64),
        record_of("a", 2.5, 2.7, 2.8),
        failed,
        record_of("a", 4.0, 5.0, 6.0),
    ]
    assert read_prefills(records) == [
        Prefill(100, 0, 1.0, alone=True),
        Prefill(100, 64, 1.0, alone=True),
        Prefill(100, 0, cast(float, pytest.approx(0.2)), alone=False),
        Prefill(100, 0, 1.0, alone=True),
    ]


def figures_of(expected: float, cached_cost: float | None, ttft_s: float, token_s: float = 0.002) -> Figures:
    return Figures(Hits(200, 80, expected, token_s, 9, cached_cost), 0, Histogram([ttft_s] * 200))


def test_ratios_are_of_kv_aware_to_the_others() -> None:
    """In the table and in the last line; what could not be told is a dash."""
    aware, robin, oracle = figures_of(0.6, 0.1, 0.2), figures_of(0.4, None, 0.8), figures_of(0.64, 0.1, 0.1)
    rows = {name: values for name, *values in compare(aware, robin, oracle)}
    assert rows["hit share, as the router expects"] == ["0.6", "0.4", "0.64", "1.5", "0.938"]
    assert rows["hit share, by the clock"] == ["0.54", "–", "0.576", "–", "0.938"]
    assert rows["ttft p50 s"] == ["0.2", "0.8", "0.1", "0.25", "2"]
    assert judge(aware, robin, oracle) == (
        "hit share to one worker's: 0.938 expected, 0.938 by the clock (goal: at least 0.9); "
        "ttft p50 to round robin's: 0.25 (goal: at most 0.5)"
    )


def test_a_machine_whose_pace_changed_is_told() -> None:
    """Then the times of the policies cannot be compared."""
    assert is_unequal(figures_of(0.6, 0.1, 0.2, 0.002), figures_of(0.4, 0.1, 0.8, 0.003))
    assert not is_unequal(figures_of(0.6, 0.1, 0.2, 0.002), figures_of(0.4, 0.1, 0.8, 0.0021))


def test_every_policy_is_asked_the_same() -> None:
    """Conversations of two to four turns, each with a document of its own."""
    first, second = list(make_conversations(0.5)), list(make_conversations(0.5))
    assert first == second
    assert {sum(1 for _ in request.with_follow_ups()) for request in first} == {2, 3, 4}
    assert len({request.messages[0].content for request in first}) == len(first) > 20

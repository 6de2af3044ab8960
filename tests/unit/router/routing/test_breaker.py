"""When a worker gets no turns, and when again."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import (
    TidegateError,
    draining,
    engine_failed,
    engine_refused,
    guide_invalid,
    internal,
    no_worker,
    option_unsupported,
    prompt_too_long,
    worker_full,
    worker_lost,
    worker_stalled,
)
from router.routing.breaker import Attempt, BreakerLimits, Breakers, Outcome, judge

UP = ["a", "b", "c", "d"]


def play(breakers: Breakers, worker: str, outcome: Outcome, times: int = 1, now: float = 0.0) -> None:
    """So many turns that end like this."""
    for _ in range(times):
        breakers.begin(worker).end(outcome, now)


def make_breakers(**limits: float) -> Breakers:
    """Of workers that have answered before."""
    breakers = Breakers(BreakerLimits(**limits))  # type: ignore[arg-type]
    for worker in UP:
        play(breakers, worker, Outcome.ANSWERED, 10)
    return breakers


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, Outcome.ANSWERED),
        (guide_invalid("x"), Outcome.ANSWERED),
        (option_unsupported("x", "y"), Outcome.ANSWERED),
        (prompt_too_long(9, 8), Outcome.ANSWERED),
        (engine_refused(), Outcome.ANSWERED),
        (worker_full(), Outcome.BUSY),
        (worker_lost(), Outcome.FAULT),
        (worker_stalled(), Outcome.FAULT),
        (engine_failed(), Outcome.FAULT),
        (no_worker(), Outcome.NOTHING),
        (draining(), Outcome.NOTHING),
        (internal(), Outcome.NOTHING),
    ],
)
def test_only_a_workers_own_faults_are_faults(error: TidegateError | None, outcome: Outcome) -> None:
    """What the caller did wrong the worker answered, full is busy, and the router's own errors say nothing."""
    assert judge(error) is outcome


def test_a_worker_that_keeps_failing_is_ejected() -> None:
    """Five of its last ten turns, while the others answer."""
    breakers = make_breakers()
    play(breakers, "a", Outcome.FAULT, 4)
    assert breakers.list_usable(UP, 0.0) == UP
    play(breakers, "a", Outcome.FAULT)
    assert (breakers.list_usable(UP, 0.0), breakers.list_open()) == (["b", "c", "d"], ["a"])


def test_a_new_worker_needs_some_faults_too() -> None:
    """One that never answered is ejected after five, not after one."""
    breakers = Breakers()
    play(breakers, "a", Outcome.FAULT, 4)
    assert breakers.list_open() == []
    play(breakers, "a", Outcome.FAULT)
    assert breakers.list_open() == ["a"]


def test_a_fault_that_all_have_is_nobodys() -> None:
    """All fail alike: nobody stands out, and all stay."""
    breakers = make_breakers()
    for _ in range(30):
        for worker in UP:
            play(breakers, worker, Outcome.FAULT)
    assert breakers.list_open() == []


def test_callers_errors_eject_nobody() -> None:
    """Twenty bad schemas at one worker (faults, 115)."""
    breakers = make_breakers()
    for _ in range(20):
        play(breakers, "a", judge(guide_invalid("x")))
    assert breakers.list_usable(UP, 0.0) == UP


def test_a_full_worker_is_used_less_and_comes_back_by_itself() -> None:
    """It stays among the usable, with a quarter of its slots, for a second (faults, 117)."""
    breakers = make_breakers()
    play(breakers, "a", Outcome.BUSY, 20)
    assert breakers.list_usable(UP, 0.0) == UP
    assert [breakers.weigh(worker, 0.9) for worker in UP] == [0.25, 1, 1, 1]
    assert [breakers.weigh(worker, 1.1) for worker in UP] == [1, 1, 1, 1]


def test_one_trial_decides() -> None:
    """After the pause one turn goes to the worker, and no other before it has answered; its first tokens are enough."""
    breakers = make_breakers()
    play(breakers, "a", Outcome.FAULT, 5)
    assert breakers.list_usable(UP, 0.9) == ["b", "c", "d"]
    assert breakers.list_usable(UP, 1.0) == UP
    trial = breakers.begin("a")
    assert breakers.list_usable(UP, 50.0) == ["b", "c", "d"]
    trial.answer()
    assert (breakers.list_usable(UP, 50.0), breakers.list_open()) == (UP, [])


def test_a_failed_trial_doubles_the_pause() -> None:
    """Up to half a minute; once the worker has answered ten turns, pauses are short again."""
    breakers, now, pauses = make_breakers(), 0.0, []
    play(breakers, "a", Outcome.FAULT, 5)
    for _ in range(7):
        begin = now
        while "a" not in breakers.list_usable(UP, now):
            now += 0.25
        pauses.append(now - begin)
        play(breakers, "a", Outcome.FAULT, now=now)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    play(breakers, "a", Outcome.ANSWERED, 11, now + 30)
    play(breakers, "a", Outcome.FAULT, 5, now + 30)
    assert "a" in breakers.list_usable(UP, now + 31)


def test_a_trial_that_says_nothing_is_followed_by_another() -> None:
    """Its caller left before the worker had answered."""
    breakers = make_breakers()
    play(breakers, "a", Outcome.FAULT, 5)
    play(breakers, "a", Outcome.NOTHING, now=1.0)
    assert breakers.list_open() == ["a"]
    assert "a" in breakers.list_usable(UP, 1.0)


@pytest.mark.parametrize("outcome", [Outcome.ANSWERED, Outcome.BUSY])
def test_a_trial_that_was_answered_ends_the_ejection(outcome: Outcome) -> None:
    """Whatever the answer was; that it is full too."""
    breakers = make_breakers()
    play(breakers, "a", Outcome.FAULT, 5)
    play(breakers, "a", outcome, now=1.0)
    assert breakers.list_open() == []


def test_turns_from_before_the_ejection_decide_nothing() -> None:
    """They end while the worker is out, well or not."""
    breakers = make_breakers()
    early = [breakers.begin("a") for _ in range(2)]
    play(breakers, "a", Outcome.FAULT, 5)
    early[0].answer()
    early[0].end(Outcome.ANSWERED, 0.5)
    early[1].end(Outcome.FAULT, 0.9)
    assert breakers.list_usable(UP, 0.99) == ["b", "c", "d"]
    assert breakers.list_usable(UP, 1.0) == UP


def test_half_of_the_workers_stay_in_use() -> None:
    """Three of four fail, one after the other; those whose pause ends first come back."""
    breakers = make_breakers()
    for at, worker in enumerate(("a", "b", "c")):
        play(breakers, worker, Outcome.FAULT, 5, now=at / 10)
    assert breakers.list_usable(UP, 0.5) == ["d", "a"]
    assert breakers.list_usable(["b", "c"], 0.5) == ["b"]
    assert breakers.list_usable(["c"], 0.5) == ["c"]
    assert breakers.list_usable([], 0.5) == []


def test_a_worker_that_left_is_forgotten() -> None:
    """What its turns say later too."""
    breakers = make_breakers()
    late = breakers.begin("a")
    play(breakers, "a", Outcome.FAULT, 5)
    breakers.leave("a")
    late.answer()
    late.end(Outcome.FAULT, 0.0)
    assert (breakers.list_open(), breakers.list_usable(UP, 0.0)) == ([], UP)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.integers(0, 3)),
        st.tuples(st.just("answer"), st.integers(0, 20)),
        st.tuples(st.just("end"), st.integers(0, 20), st.sampled_from(Outcome)),
        st.tuples(st.just("fault"), st.integers(0, 20)),
        st.tuples(st.just("wait"), st.floats(0, 3)),
    ),
    max_size=80,
)


@given(steps=steps, up=st.sets(st.sampled_from(UP), min_size=1), floor=st.floats(0.01, 1))
def test_some_workers_are_always_usable_and_all_recover(steps: list[tuple[object, ...]], up: set[str], floor: float) -> None:
    """Whatever happens, at least the floor of those that are up may be used, an ejected one has at most one trial beyond that, and when the
    faults end every worker is back."""
    breakers, now, running = Breakers(BreakerLimits(floor=floor)), 0.0, list[Attempt]()
    for name, *facts in steps:
        match name, facts:
            case "wait", [float(seconds)]:
                now += seconds
            case "begin", [int(place)]:
                running.append(breakers.begin(UP[place]))
            case "answer", [int(turn)] if running:
                running[turn % len(running)].answer()
            case "end", [int(turn), Outcome() as outcome] if running:
                running[turn % len(running)].end(outcome, now)
            case "fault", [int(turn)] if running:
                running[turn % len(running)].end(Outcome.FAULT, now)
        usable = breakers.list_usable(sorted(up), now)
        assert set(usable) <= up
        assert len(set(usable)) == len(usable) >= max(1, math.ceil(floor * len(up)))
        assert all(0 < breakers.weigh(worker, now) <= 1 for worker in UP)
    for attempt in running:
        attempt.end(Outcome.NOTHING, now)
    for worker in UP:
        play(breakers, worker, Outcome.ANSWERED, now=now + 31)
    assert breakers.list_open() == []


@given(turns=st.lists(st.tuples(st.sampled_from(UP), st.sampled_from([Outcome.ANSWERED, Outcome.BUSY, Outcome.NOTHING]))))
def test_without_faults_nobody_is_ejected(turns: list[tuple[str, Outcome]]) -> None:
    """However many turns are refused, wrong or given up."""
    breakers = Breakers()
    for at, turn in enumerate(turns):
        play(breakers, *turn, now=at / 10)
    assert breakers.list_open() == []
    assert breakers.list_usable(UP, 0.0) == UP

"""The ladder: which rung a turn is on, by what it would meet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.admission.entry import NO_WAIT, Outlook, Span
from router.admission.refusals import queue_full
from router.degradation.gate import Thresholds
from router.degradation.ladder import Ladder, Prospect, Rung
from router.errors import no_worker

SLO = 1.0
ENTER, LEAVE = Thresholds().enter, Thresholds().leave
FREE = Outlook(NO_WAIT, Span(0.01, 0.02, 0.04))


def waits(seconds: float, prefill: float = 0.0) -> Outlook:
    """A turn whose first token comes within this many seconds, nine times in ten."""
    return Outlook(Span(seconds / 4, seconds / 2, seconds), Span(prefill / 4, prefill / 2, prefill))


def test_a_free_slot_admits() -> None:
    """Even a turn whose prompt alone takes longer than the SLO: a smaller model that is no sooner free helps nobody."""
    long = Outlook(NO_WAIT, Span(5.0, 6.0, 7.0))
    assert [Ladder(SLO).decide(here, 0.0, 0.0, has_lower=True) for here in (FREE, long)] == [Rung.ADMIT] * 2


def test_a_wait_within_the_slo_is_waited() -> None:
    """The wait and the prompt's time together."""
    assert Ladder(SLO).decide(waits(0.5, 0.3), 0.0, 0.0, has_lower=True) is Rung.WAIT


def test_a_wait_that_breaks_the_slo_goes_down() -> None:
    """If a smaller model may answer and takes the turn; else it waits, in view of all."""
    assert Ladder(SLO).decide(waits(0.8, 0.3), 0.0, 0.0, has_lower=True) is Rung.DOWNGRADE
    assert Ladder(SLO).decide(waits(0.8, 0.3), 0.0, 0.0, has_lower=False) is Rung.WAIT


def test_without_an_slo_a_wait_degrades_nothing() -> None:
    """There is nothing to break."""
    assert Ladder(None).decide(waits(1000.0), 0.0, 0.0, has_lower=True) is Rung.WAIT


@pytest.mark.parametrize("error", [no_worker(), queue_full(3.0)])
@pytest.mark.parametrize("slo_s", [None, SLO])
def test_a_turn_that_nobody_would_serve_goes_down_or_is_refused(error: Prospect, slo_s: float | None) -> None:
    """Whatever the gate says: an answer by a smaller model is better than none."""
    assert Ladder(slo_s).decide(error, 1.0, 0.0, has_lower=True) is Rung.DOWNGRADE
    assert Ladder(slo_s).decide(error, 1.0, 0.0, has_lower=False) is Rung.REFUSE


def test_a_smaller_model_takes_what_it_can_begin_in_time() -> None:
    """By its own SLO, or where it has none by that of the model above."""
    pressed = waits(3.0)
    assert Ladder(2.0).takes(waits(1.7), pressed, SLO)
    assert not Ladder(0.5).takes(waits(0.8), pressed, SLO)
    assert Ladder(None).takes(waits(0.8), pressed, SLO)
    assert not Ladder(None).takes(waits(1.1), pressed, SLO)
    assert not Ladder(None).takes(no_worker(), pressed, SLO)


def test_a_smaller_model_takes_what_nobody_else_would_serve() -> None:
    """Such a turn may wait there for longer than the SLO."""
    assert Ladder(SLO).takes(waits(30.0), no_worker(), SLO)
    assert not Ladder(SLO).takes(queue_full(1.0), no_worker(), SLO)


prospects = st.one_of(st.just(FREE), st.builds(waits, st.floats(0.001, 5.0), st.floats(0.0, 0.5)), st.just(no_worker()))


@given(st.lists(st.tuples(st.floats(0.0, 20.0), prospects, st.floats(0.0, 1.0), st.booleans()), max_size=60))
def test_the_rungs_hold_in_any_sequence_of_turns(turns: list[tuple[float, Prospect, float, bool]]) -> None:
    """A turn is refused only if nobody would serve it, goes down only if it may and the SLO is near, and needs what it then gets."""
    ladder, now = Ladder(SLO), 0.0
    for pause, here, hardness, has_lower in turns:
        now += pause
        needed = ladder.needs_lower(here, hardness, now)
        rung = ladder.decide(here, hardness, now, has_lower=has_lower)
        assert (rung is Rung.DOWNGRADE) == (needed and has_lower)
        assert (rung is Rung.ADMIT) == (here is FREE)
        if isinstance(here, Outlook):
            assert rung is not Rung.REFUSE
            assert rung is not Rung.DOWNGRADE or here.wait.high + here.prefill.high > (2 * LEAVE - ENTER) * SLO
        assert not (rung is Rung.DOWNGRADE and isinstance(here, Outlook)) or ladder.is_degraded(now)

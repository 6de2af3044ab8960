"""What a turn would meet in a queue if it came now: asked without coming, so that it can go elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.admission.entry import NO_WAIT, Entry, QueueLimits
from router.admission.estimate import TimeModel
from router.admission.fair import Prices
from router.admission.turnstile import Turnstile
from router.errors import TidegateError
from router.model import Priority
from tests.budget import examples
from tests.unit.router.admission.engine import Arrival, Engine

ENTRY = Entry("a", 100, 20)

entries = st.builds(
    Entry,
    tenant=st.sampled_from("abc"),
    prompt_tokens=st.integers(1, 50),
    output_tokens=st.integers(0, 50),
    weight=st.sampled_from([1.0, 3.0]),
    priority=st.sampled_from(Priority),
)


def make_turnstile(slots: int = 1, limits: QueueLimits = QueueLimits()) -> Turnstile:  # noqa: B008 - frozen
    return Turnstile(lambda: slots, TimeModel(), limits, Prices())


@given(st.lists(entries, max_size=30), st.lists(st.integers(0, 100), max_size=5), entries)
@settings(max_examples=examples(2), deadline=None)
def test_what_is_foreseen_is_what_a_turn_is_told_when_it_comes(asked: list[Entry], leave: list[int], new: Entry) -> None:
    """Whoever waits, and whatever class the turn is of; and to ask changes nothing for those who wait."""
    turnstile = make_turnstile(0, QueueLimits(length=1000, tenant_share=1.0))
    tickets = [turnstile.arrive(entry, 0.0) for entry in asked]
    for at in leave:
        turnstile.withdraw(tickets[at % len(tickets)]) if tickets else None
    before = turnstile.review(0.0)
    foreseen = turnstile.foresee(new, 0.0).wait
    assert turnstile.review(0.0) == before
    told = turnstile.tell(turnstile.arrive(new, 0.0))
    assert (told.low_s, told.eta_s, told.high_s) == pytest.approx(foreseen)


def test_where_a_slot_is_free_there_is_no_wait() -> None:
    """Only the prompt is to be read, of which the cached part is not."""
    outlook = make_turnstile().foresee(Entry("a", 1000, 20), 0.0)
    assert outlook.wait == NO_WAIT
    assert 0 < outlook.prefill.low <= outlook.prefill.mid <= outlook.prefill.high
    assert make_turnstile().foresee(Entry("a", 1000, 20, cached_tokens=900), 0.0).prefill.mid < outlook.prefill.mid


def refusal_of(turnstile: Turnstile, entry: Entry, now: float = 0.0) -> TidegateError:
    with pytest.raises(TidegateError) as caught:
        turnstile.foresee(entry, now)
    assert caught.value.retry_after_s is not None
    assert caught.value.retry_after_s > 0
    return caught.value


def test_a_full_queue_is_foreseen() -> None:
    """As a turn that comes would be refused."""
    turnstile = make_turnstile(0, QueueLimits(length=1, tenant_share=1.0))
    turnstile.arrive(ENTRY, 0.0)
    assert refusal_of(turnstile, ENTRY).reason == "QUEUE_FULL"


def learnt_engine() -> Engine:
    """One slot, error bars that are learnt, and forty turns that wait."""
    engine = Engine(slots=1, limits=QueueLimits(longest_wait_s=1000.0))
    engine.play([Arrival(0.1 * at, ENTRY, 20) for at in range(100)])
    for _ in range(40):
        engine.turnstile.arrive(ENTRY, engine.now)
    return engine


def test_a_wait_that_would_outlast_the_deadline_is_refused_before_it_begins() -> None:
    """A caller who would wait for longer than is likely gets a place."""
    engine = learnt_engine()
    hurried, patient = (Entry("a", 100, 20, deadline_s=engine.now + seconds) for seconds in (3.0, 300.0))
    assert refusal_of(engine.turnstile, hurried, engine.now).reason == "DEADLINE_UNREACHABLE"
    assert 3.0 < engine.turnstile.foresee(patient, engine.now).wait.mid < 300.0


def test_a_wait_beyond_what_the_router_allows_is_refused_before_it_begins() -> None:
    """Nobody is let in to be sent away when the longest wait is over."""
    turnstile = Turnstile(lambda: 1, learnt_engine().times, QueueLimits(longest_wait_s=5.0), Prices())
    turnstile.arrive(ENTRY, 0.0)
    assert turnstile.foresee(ENTRY, 0.0).wait.low < 5.0
    for _ in range(40):
        turnstile.arrive(ENTRY, 0.0)
    assert refusal_of(turnstile, ENTRY).reason == "QUEUE_FULL"


def test_waits_are_learnt_although_nobody_waits() -> None:
    """Where all that would wait go elsewhere, the bars come from what their waits would have been."""
    turnstile, now = make_turnstile(), 0.0
    for _ in range(400):
        ticket = turnstile.arrive(ENTRY, now)
        turnstile.foresee(ENTRY, now + 1.0)
        turnstile.foresee(ENTRY, now + 1.5)
        now += 4.0
        turnstile.release(ticket, now)
    turnstile.arrive(ENTRY, now)
    assert turnstile.foresee(ENTRY, now).wait.mid == pytest.approx(3.0, rel=0.1)

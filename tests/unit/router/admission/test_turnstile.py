"""The turnstile without I/O: order, bounds, deadlines, and that no slot idles and no turn is lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.admission.entry import Entry, QueueLimits, Work
from router.admission.estimate import TimeModel
from router.admission.fair import Prices
from router.admission.line import Ticket
from router.admission.turnstile import Turnstile
from router.errors import Code, TidegateError
from router.model import Priority
from tests.budget import examples
from tests.unit.router.admission.engine import Arrival, Engine


class Desk:
    """A turnstile with as many slots as the test says."""

    def __init__(self, slots: int = 1, limits: QueueLimits = QueueLimits()) -> None:  # noqa: B008 - frozen
        self.slots = slots
        self.times = TimeModel()
        self.turnstile = Turnstile(lambda: self.slots, self.times, limits, Prices())

    def arrive(
        self, tenant: str = "a", priority: Priority = Priority.INTERACTIVE, now: float = 0.0, deadline_s: float | None = None
    ) -> Ticket:
        return self.turnstile.arrive(Entry(tenant, 10, 10, priority=priority, deadline_s=deadline_s), now)

    def next(self, now: float = 0.0) -> Ticket:
        """The turn that goes when one more slot comes free."""
        self.slots = self.turnstile.running + 1
        (ticket,) = self.turnstile.grant(now)
        return ticket


def test_a_turn_goes_at_once_when_a_slot_is_free() -> None:
    """Without a queue there is no wait."""
    assert Desk().arrive().bill is not None


def test_a_turn_waits_when_all_slots_are_held() -> None:
    """No more turns run than there are slots, and the one that waits is told that nobody is in front of it."""
    desk = Desk()
    desk.arrive()
    waiting = desk.arrive()
    assert waiting.bill is None
    assert desk.turnstile.tell(waiting).position == 0


def test_a_first_token_is_predicted_from_the_queue_and_the_turns_of_late() -> None:
    """With a free slot it is the prefill of such a turn; behind others, whoever's, their work comes on top."""
    desk = Desk(slots=1)
    for now in range(40):
        turn = desk.arrive(now=now)
        desk.turnstile.take_first(turn, now + 0.3)
        desk.turnstile.release(turn, now + 0.5)
    assert desk.turnstile.predict_first_token(50.0) == pytest.approx(0.3, rel=0.1)
    predicted = []
    for tenant in "abcd":
        desk.arrive(tenant, now=50.0)
        predicted.append(desk.turnstile.predict_first_token(50.0))
    assert 0.3 < predicted[0] < predicted[1] < predicted[2] < predicted[3]
    assert desk.turnstile.waiting_work == Work(3, 30, 300, 30)


def test_the_turns_of_a_tenant_go_in_order_of_arrival() -> None:
    """Equal priority means first in, first out."""
    desk = Desk(slots=0)
    tickets = [desk.arrive(now=at) for at in range(4)]
    assert [desk.next() for _ in tickets] == tickets


def test_interactive_turns_go_before_the_tenants_batch() -> None:
    """The classes are kept in order among turns that come together."""
    desk = Desk(slots=0)
    batch, standard, interactive = (desk.arrive(priority=p) for p in (Priority.BATCH, Priority.STANDARD, Priority.INTERACTIVE))
    assert [desk.next() for _ in range(3)] == [interactive, standard, batch]


def test_a_class_buys_nothing_from_other_tenants() -> None:
    """Between tenants only service counts: a batch turn of a tenant that got less goes first."""
    desk = Desk(slots=0)
    greedy = [desk.arrive("greedy", Priority.INTERACTIVE) for _ in range(3)]
    batch = desk.arrive("modest", Priority.BATCH)
    assert [desk.next() for _ in range(2)] == [greedy[0], batch]


@given(st.lists(st.tuples(st.sampled_from(Priority), st.floats(0, 20)), min_size=1, max_size=40))
@settings(deadline=None)
def test_no_class_starves(arrivals: list[tuple[Priority, float]]) -> None:
    """After its head start a turn is never passed by one of its tenant that comes later, of whatever class."""
    limits = QueueLimits(standard_wait_s=5.0, batch_wait_s=12.0)
    desk, now = Desk(slots=0, limits=limits), 0.0
    for priority, gap in arrivals:
        now += gap
        desk.arrive(priority=priority, now=now)
    order = [desk.next() for _ in arrivals]
    for at, first in enumerate(order):
        for passed in order[at + 1 :]:
            assert first.arrived_s <= passed.arrived_s + limits.head_start(passed.entry.priority)


def refusal_of(desk: Desk, tenant: str) -> TidegateError:
    with pytest.raises(TidegateError) as caught:
        desk.arrive(tenant)
    return caught.value


def test_a_full_queue_refuses() -> None:
    """The refusal is "busy", says when to come again, and leaves the queue as it was."""
    desk = Desk(slots=0, limits=QueueLimits(length=2, tenant_share=1.0))
    desk.arrive("a")
    desk.arrive("b")
    error = refusal_of(desk, "c")
    assert (error.code, error.reason) == (Code.RESOURCE_EXHAUSTED, "QUEUE_FULL")
    assert error.retry_after_s is not None
    assert error.retry_after_s > 0
    assert desk.turnstile.waiting == 2


def test_one_tenant_cannot_fill_the_queue() -> None:
    """At its share a tenant is refused while others still find a place."""
    desk = Desk(slots=0, limits=QueueLimits(length=4, tenant_share=0.5))
    desk.arrive("a")
    desk.arrive("a")
    assert refusal_of(desk, "a").reason == "QUEUE_FULL"
    assert desk.arrive("b").refusal is None


def test_a_turn_whose_deadline_passed_leaves() -> None:
    """It is refused at the next look, or at the latest when its turn comes, and never runs."""
    desk = Desk(slots=0)
    seen, unseen = desk.arrive(deadline_s=1.0), desk.arrive(deadline_s=3.0)
    refused, _ = desk.turnstile.review(2.0)
    assert refused == [seen]
    assert desk.next(now=4.0) is unseen
    for ticket in (seen, unseen):
        assert ticket.refusal is not None
        assert ticket.refusal.reason == "DEADLINE_PASSED"
    assert desk.turnstile.running == 0


def test_a_turn_that_cannot_meet_its_deadline_leaves() -> None:
    """Once the error bars are learnt, a deadline under the lower bar is refused before it passes, and one over it is not."""
    engine = Engine(slots=1)
    engine.play([Arrival(0.1 * at, Entry("a", 100, 20), 20) for at in range(100)])
    assert engine.times.calibrated
    tickets = [engine.turnstile.arrive(Entry("a", 100, 20, deadline_s=engine.now + 3.0), engine.now) for _ in range(40)]
    refused, told = engine.turnstile.review(engine.now)
    assert tickets[-1] in refused
    assert tickets[1] in [ticket for ticket, _ in told]
    assert {ticket.refusal.reason for ticket in refused if ticket.refusal} == {"DEADLINE_UNREACHABLE"}


def test_nobody_waits_for_ever() -> None:
    """The longest wait ends with a refusal, whatever the caller allows."""
    desk = Desk(slots=0, limits=QueueLimits(longest_wait_s=10.0))
    ticket = desk.arrive(deadline_s=1000.0)
    assert desk.turnstile.review(9.0)[0] == []
    assert desk.turnstile.review(10.0)[0] == [ticket]
    assert ticket.refusal is not None
    assert ticket.refusal.reason == "QUEUE_TIMEOUT"


def test_released_twice_frees_one_slot() -> None:
    """Ends that race free a slot once."""
    desk = Desk(slots=2)
    first, _ = desk.arrive(), desk.arrive()
    desk.turnstile.release(first, 0.0)
    desk.turnstile.release(first, 0.0)
    desk.turnstile.withdraw(first)
    assert desk.turnstile.running == 1


deeds = st.lists(
    st.tuples(st.sampled_from(["arrive", "leave", "end", "slots"]), st.integers(0, 10_000), st.sampled_from(Priority)), max_size=120
)


@given(deeds)
@settings(max_examples=examples(1.5), deadline=None)
def test_no_slot_idles_and_no_turn_is_lost(trace: list[tuple[str, int, Priority]]) -> None:
    """In any order of arrivals, cancels, ends and changes of capacity a turn runs at most once, and waits only while no slot is free."""
    desk = Desk(slots=2, limits=QueueLimits(length=10_000, tenant_share=1.0))
    turnstile = desk.turnstile
    waiting: list[Ticket] = []
    running: list[Ticket] = []
    for deed, number, priority in trace:
        if deed == "arrive":
            entry = Entry(str(number % 4), 1 + number % 50, number % 30, weight=1 + number % 3, priority=priority)
            ticket = turnstile.arrive(entry, 0.0)
            (running if ticket.bill else waiting).append(ticket)
        elif deed == "leave" and waiting:
            turnstile.withdraw(waiting.pop(number % len(waiting)))
        elif deed == "end" and running:
            turnstile.release(running.pop(number % len(running)), 0.0)
        elif deed == "slots":
            desk.slots = number % 5
        for ticket in turnstile.grant(0.0):
            waiting.remove(ticket)
            running.append(ticket)
        assert (turnstile.waiting, turnstile.running) == (len(waiting), len(running))
        assert not waiting or turnstile.running >= desk.slots, "work conserving"


entries = st.builds(
    Entry,
    tenant=st.sampled_from("abc"),
    prompt_tokens=st.integers(1, 50),
    output_tokens=st.integers(0, 50),
    weight=st.sampled_from([1.0, 3.0]),
    priority=st.sampled_from(Priority),
)


@given(st.lists(entries, min_size=1, max_size=30), st.lists(st.integers(0, 100), max_size=5))
@settings(deadline=None)
def test_the_told_position_is_the_order_of_service(asked: list[Entry], leave: list[int]) -> None:
    """With nobody coming or leaving, turns go in the order of their positions; being told alone or with all others is the same."""
    desk = Desk(slots=0)
    tickets = [desk.turnstile.arrive(entry, 0.0) for entry in asked]
    for at in leave:
        desk.turnstile.withdraw(tickets[at % len(tickets)])
    _, told = desk.turnstile.review(0.0)
    assert [queued.position for _, queued in told] == list(range(len(told)))
    for ticket, queued in told:
        assert desk.turnstile.tell(ticket) == pytest.approx(queued)
    assert [desk.next() for _ in told] == [ticket for ticket, _ in told]


def test_request_size_does_not_buy_service_on_an_engine() -> None:
    """Two backlogged tenants with turns of 10:1 in size get the same service within a tenth on an engine, with a wrong prediction."""
    large = [Arrival(0.0, Entry("large", 400, 100), 80) for _ in range(400)]
    small = [Arrival(0.0, Entry("small", 40, 8), 8) for _ in range(4000)]
    engine = Engine(slots=4, limits=QueueLimits(length=10_000, tenant_share=1.0, longest_wait_s=1e9))
    engine.play(large + small, until_s=150.0)
    assert {account.tenant for account in engine.turnstile.accounts if account.waiting} == {"large", "small"}
    assert engine.service["large"] / engine.service["small"] == pytest.approx(1.0, abs=0.1)

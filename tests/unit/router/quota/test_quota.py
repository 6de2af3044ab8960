"""Holds in memory: reserved under all limits or none, extended, settled once, whatever happens in between."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.quota.estimate import OutputEstimator
from router.quota.limits import FREE, Amounts, Limits, Price, Subject, SubjectKind
from router.quota.memory import MemoryStore
from router.quota.quota import Ask, Hold, QuotaExceeded, StoredQuota
from tests.budget import examples
from tests.unit.router.quota.fake_store import HandClock, NeverStore


def tenant(**limits: int) -> Subject:
    return Subject(SubjectKind.TENANT, "acme", Limits(**limits))


def user(**limits: int) -> Subject:
    return Subject(SubjectKind.USER, "acme/ann", Limits(**limits))


@dataclass
class Desk:
    """A quota on a clock that is set by hand; asks get ids of their own."""

    clock: HandClock = field(default_factory=HandClock)
    asked: int = 0

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock)
        self.estimator = OutputEstimator(default=50)
        self.quota = StoredQuota(self.store, self.estimator)

    async def reserve(self, *subjects: Subject, input_tokens: int = 10, most: int = 1_000, price: Price = FREE) -> Hold:
        self.asked += 1
        return await self.quota.reserve(subjects, Ask(f"turn-{self.asked}", "acme", "small", input_tokens, most, price))

    def used(self, *subjects: Subject) -> dict[str, int]:
        """What is counted, by the limit's name."""
        return {bound.rule.name: self.store.count_used(bound) for subject in subjects for bound in subject.bounds}


async def test_a_turn_is_charged_what_it_produced() -> None:
    """The guess is booked first; on leaving, only what was counted stays."""
    desk, acme = Desk(), tenant(requests_per_minute=9, input_tokens_per_minute=90, output_tokens_per_minute=90, tokens_per_day=900)
    async with await desk.reserve(acme) as hold:
        assert desk.used(acme)["output_tokens_per_minute"] == 50
        hold.count(3)
        hold.count(4)
    expected = {"requests_per_minute": 1, "input_tokens_per_minute": 10, "output_tokens_per_minute": 7, "tokens_per_day": 17}
    assert desk.used(acme) == expected


async def test_a_refused_turn_eats_nothing() -> None:
    """One turn at once and ten requests: after twenty refusals, nine more pass."""
    desk, acme, ann = Desk(), tenant(requests_per_minute=10), user(concurrent_turns=1)
    async with await desk.reserve(acme, ann):
        for _ in range(20):
            with pytest.raises(QuotaExceeded, match="concurrent_turns of the user"):
                await desk.reserve(acme, ann)
    for _ in range(9):
        async with await desk.reserve(acme, ann):
            pass
    with pytest.raises(QuotaExceeded, match="requests_per_minute of the tenant"):
        await desk.reserve(acme, ann)


async def test_the_longest_refusal_is_told() -> None:
    """Both refuse; asking again before the later one ends would be in vain, and then it is granted."""
    desk, acme, ann = Desk(), tenant(requests_per_minute=1), user(tokens_per_day=60)
    await (await desk.reserve(acme, ann)).settle(Amounts(1, 10, 50))
    with pytest.raises(QuotaExceeded) as refused:
        await desk.reserve(acme, ann)
    error = refused.value
    assert (error.reason, *error.allowance) == ("QUOTA_EXCEEDED", "user", "tokens_per_day", 60, 0)
    assert error.retry_after_s is not None
    desk.clock.now_ms += round(error.retry_after_s * 1000) - 1
    with pytest.raises(QuotaExceeded):
        await desk.reserve(acme, ann)
    desk.clock.now_ms += 1
    await desk.reserve(acme, ann)


@pytest.mark.parametrize("name", ["requests_per_minute", "input_tokens_per_minute", "output_tokens_per_minute", "concurrent_turns"])
async def test_zero_refuses_for_ever(name: str) -> None:
    """A limit of zero is a limit, and no time is told at which it would end."""
    with pytest.raises(QuotaExceeded) as refused:
        await Desk().reserve(tenant(**{name: 0}))
    assert refused.value.retry_after_s is None


async def test_no_limits_refuse_nothing() -> None:
    """What is not set does not count."""
    desk = Desk()
    holds = [await desk.reserve(tenant(), user()) for _ in range(100)]
    assert holds[0].remaining() == ()


async def test_a_prompt_above_the_limit_is_refused_for_ever() -> None:
    """Waiting would not help."""
    with pytest.raises(QuotaExceeded) as refused:
        await Desk().reserve(tenant(tokens_per_day=10), input_tokens=10)
    assert refused.value.retry_after_s is None


@pytest.mark.parametrize(
    ("limits", "price", "most", "reserved"),
    [
        ({"output_tokens_per_minute": 20}, FREE, 1_000, 20),
        ({"tokens_per_day": 35}, FREE, 1_000, 25),
        ({"micros_per_month": 40}, Price(1_000_000, 2_000_000), 1_000, 15),
        ({}, FREE, 7, 7),
        ({}, FREE, 1_000, 50),
    ],
)
async def test_the_guess_is_never_above_a_whole_limit(limits: dict[str, int], price: Price, most: int, reserved: int) -> None:
    """Nor above what the caller asks for at most; so a small limit still serves."""
    hold = await Desk().reserve(tenant(**limits), price=price, most=most)
    assert hold.reserved_output_tokens == reserved


async def test_the_guess_is_learned() -> None:
    """Answers of 8 tokens make the next reservation 8."""
    desk = Desk()
    async with await desk.reserve() as hold:
        hold.count(8)
    assert (await desk.reserve()).reserved_output_tokens == 8


async def test_an_answer_ends_at_the_budget() -> None:
    """Slices are granted while they fit; then the hold says so, and no token beyond the limit was produced."""
    desk, acme = Desk(), tenant(output_tokens_per_minute=100)
    async with await desk.reserve(acme) as hold:
        while not hold.uncovered() or await hold.extend(20):
            hold.count(1)
    assert desk.used(acme)["output_tokens_per_minute"] == 90
    assert not await hold.extend(1)


async def test_an_extension_stops_at_the_turns_maximum() -> None:
    """No more is booked than the turn may produce."""
    desk, acme = Desk(), tenant(output_tokens_per_minute=1_000, micros_per_month=10_000)
    hold = await desk.reserve(acme, most=60, price=Price(0, 3_000_000))
    assert hold.uncovered(ahead=50)
    assert await hold.extend(128)
    assert await hold.extend(128)
    assert not hold.uncovered(ahead=50)
    assert desk.used(acme) == {"output_tokens_per_minute": 60, "micros_per_month": 180}


async def test_what_is_left_is_told() -> None:
    """For each limit of each subject, with this turn taken off."""
    hold = await Desk().reserve(tenant(requests_per_minute=5), user(concurrent_turns=3))
    told = [(each.subject, each.name, each.limit, each.left) for each in hold.remaining()]
    assert told == [("tenant", "requests_per_minute", 5, 4), ("user", "concurrent_turns", 3, 2)]


async def test_the_same_turn_is_booked_once() -> None:
    """A reservation that is sent twice counts as one."""
    desk, acme = Desk(), tenant(requests_per_minute=5)
    for _ in range(3):
        await desk.quota.reserve([acme], Ask("turn", "acme", "small", 1, 1))
    assert desk.used(acme) == {"requests_per_minute": 1}


async def test_cancel_at_the_end_refunds_once() -> None:
    """A settlement and the context's exit in the same tick, five hundred times: the balance is what was produced."""
    desk, acme = Desk(), tenant(tokens_per_day=100_000)
    for _ in range(500):
        async with await desk.reserve(acme) as hold:
            hold.count(5)
            await asyncio.gather(hold.settle(hold.read_counted()), hold.settle(Amounts()))
    assert desk.used(acme) == {"tokens_per_day": 500 * 15}


async def test_of_a_hundred_at_once_five_pass() -> None:
    """With a limit of five, in turns at once and in requests."""
    for limits in ({"concurrent_turns": 5}, {"requests_per_minute": 5}):
        desk = Desk()
        results = await asyncio.gather(*(desk.reserve(tenant(**limits)) for _ in range(100)), return_exceptions=True)
        assert sum(isinstance(result, Hold) for result in results) == 5


async def test_counters_that_passed_are_dropped() -> None:
    """Tenants that are gone take no memory."""
    desk = Desk()
    for number in range(200):
        desk.clock.now_ms += 1_000
        subject = Subject(SubjectKind.TENANT, f"t{number}", Limits(requests_per_minute=1, concurrent_turns=1))
        async with await desk.reserve(subject):
            pass
    assert desk.store.counters < 100
    assert desk.store.holds == 0


async def test_a_reservation_that_is_cancelled_leaves_nothing() -> None:
    """The store may have booked it already."""
    store, acme = NeverStore(), tenant(requests_per_minute=5, concurrent_turns=1)
    with pytest.raises(asyncio.CancelledError):
        await StoredQuota(store, OutputEstimator()).reserve([acme], Ask("turn", "acme", "small", 1, 1))
    assert [store.count_used(bound) for bound in acme.bounds] == [0, 0]


LIMIT = 300
PRICE = Price(1_000_000, 2_000_000)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.integers(0, 60)),
        st.tuples(st.just("produce"), st.integers(0, 9)),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("fail"), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.integers(0, 90_000)),
    ),
    max_size=80,
)


@dataclass
class Play:
    """Turns that start, produce and end in any order, and what they produced."""

    desk: Desk = field(default_factory=Desk)
    running: list[Hold] = field(default_factory=list)
    ended: list[Hold] = field(default_factory=list)
    charged: Amounts = field(default_factory=Amounts)

    def __post_init__(self) -> None:
        self.acme = tenant(output_tokens_per_minute=LIMIT, tokens_per_day=10 * LIMIT, micros_per_month=10**9, concurrent_turns=4)
        self.ann = user(requests_per_minute=20, output_tokens_per_minute=LIMIT // 2)

    async def start(self, input_tokens: int) -> None:
        try:
            self.running.append(await self.desk.reserve(self.acme, self.ann, input_tokens=input_tokens, price=PRICE))
        except QuotaExceeded as refused:
            assert refused.retry_after_s is None or refused.retry_after_s > 0

    async def produce(self, place: int) -> None:
        if self.running:
            hold = self.running[place % len(self.running)]
            for _ in range(30):
                if hold.uncovered() and not await hold.extend(16):
                    return
                hold.count(1)

    async def end(self, place: int) -> None:
        await self._leave(place, None)

    async def cancel(self, place: int) -> None:
        await self._leave(place, asyncio.CancelledError())

    async def fail(self, place: int) -> None:
        await self._leave(place, RuntimeError())

    async def wait(self, pause_ms: int) -> None:
        self.desk.clock.now_ms += pause_ms

    async def _leave(self, place: int, error: BaseException | None) -> None:
        if self.running:
            hold = self.running.pop(place % len(self.running))
            self.charged += hold.read_counted()
            await hold.__aexit__(type(error) if error else None, error, None)
            self.ended.append(hold)
        if self.ended:
            await self.ended[place % len(self.ended)].settle(Amounts(9, 9, 9, 9))

    def check(self) -> None:
        for subject in (self.acme, self.ann):
            for bound in subject.bounds:
                assert 0 <= self.desk.store.count_used(bound) <= bound.limit


@settings(max_examples=examples(1.5), deadline=None)
@given(steps)
async def test_whatever_happens_what_is_charged_was_produced(steps: list[tuple[str, int]]) -> None:
    """Any order of starts, tokens, ends, cancels, failures and second settlements: no limit is ever passed, and the month's money, whose
    window has not moved on, is the price of what was produced."""
    play = Play()
    for name, value in steps:
        await getattr(play, name)(value)
        play.check()
    while play.running:
        await play.end(0)
    assert play.desk.used(play.acme)["micros_per_month"] == play.charged.micros
    assert play.desk.used(play.acme)["concurrent_turns"] == 0
    assert play.desk.store.holds == 0

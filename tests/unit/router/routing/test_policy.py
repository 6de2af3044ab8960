"""Which worker takes a turn."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.admission.estimate import TimeModel, Timing
from router.routing.book import Sums
from router.routing.offer import Booked, cost_of
from router.routing.pace import Paces
from router.routing.policy import (
    KvAware,
    LeastLoaded,
    Policy,
    Rates,
    Request,
    RoundRobin,
    State,
    TwoChoices,
    WorkerState,
    choose,
    read_rates,
)
from tests.budget import examples

RATES = Rates(turn_s=0.005, token_s=1e-4, pair_s=1e-9, step_s=0.01, sequence_s=1e-4)
REQUEST = Request(prompt_tokens=2000, output_tokens=100, key=7)
POLICIES = [KvAware(), LeastLoaded(), TwoChoices(random.Random(1)), RoundRobin()]


def worker(name: str, **facts: float) -> WorkerState:
    return WorkerState(name, **{"slots": 64, "total_blocks": 10_000, **facts})  # type: ignore[arg-type]


def take(*workers: WorkerState, request: Request = REQUEST, policy: Policy = KvAware(), **booked: Booked) -> str:  # noqa: B008 - stateless
    return choose(policy, State(workers, RATES), request, booked).worker


def test_a_cached_prefix_draws_a_turn() -> None:
    """When the loads are alike, and also against a somewhat larger load: what counts are seconds."""
    assert take(worker("a"), worker("b", cached_tokens=1000)) == "b"
    assert take(worker("a"), worker("b", cached_tokens=1000), b=Booked(5)) == "b"


def test_a_turn_leaves_its_prefix_when_that_costs_more_than_it_saves() -> None:
    """A thousand tokens are a tenth of a second; more work than that is booked in front of them."""
    assert take(worker("a"), worker("b", cached_tokens=1000), b=Booked(1, 1500)) == "a"
    assert take(worker("a"), worker("b", cached_tokens=1000), b=Booked(15)) == "a"
    assert take(worker("a"), worker("b", cached_tokens=1900), b=Booked(15)) == "b"


def test_leaving_is_each_turns_own_decision() -> None:
    """At the same loads a turn with a longer prefix stays."""
    loads = {"a": Booked(2), "b": Booked(12)}
    found = [
        choose(KvAware(), State([worker("a"), worker("b", cached_tokens=cached)], RATES), REQUEST, loads).worker for cached in (200, 1800)
    ]
    assert found == ["a", "b"]


def test_a_free_slot_is_worth_a_prefix() -> None:
    """Waiting for a slot takes longer than computing the prompt."""
    assert take(worker("a"), worker("b", slots=4, cached_tokens=1900), b=Booked(4)) == "a"
    assert take(worker("a"), worker("b", slots=4, cached_tokens=1900), b=Booked(3)) == "b"


def test_what_a_worker_tells_counts_too() -> None:
    """Others may use it that book nothing."""
    assert take(worker("a", turns=30), worker("b"), b=Booked(2)) == "b"
    assert take(worker("a", used_blocks=9_500), worker("b"), b=Booked(2)) == "b"


def test_a_full_cache_repels() -> None:
    """The more the fuller it is; a half-full one hardly."""
    assert take(worker("a", cached_tokens=1900), worker("b"), a=Booked(1, 0, 9_950)) == "b"
    assert take(worker("a", cached_tokens=1900), worker("b"), a=Booked(1, 0, 4_000)) == "a"


def test_a_slow_worker_gets_less() -> None:
    """At equal loads the faster one is preferred, until it has more to do."""
    assert take(worker("a", pace=2.0), worker("b")) == "b"
    assert take(worker("a", pace=2.0), worker("b"), b=Booked(40, 4_000)) == "a"


def test_a_worker_of_little_weight_gets_few_turns() -> None:
    """A tenth of the slots of a new one; a worker that said it is full is not left out when all are."""
    assert take(worker("new", weight=0.1), worker("old"), new=Booked(6), old=Booked(20)) == "old"
    assert take(worker("new", weight=0.1), worker("old"), new=Booked(2), old=Booked(20)) == "new"
    assert take(worker("only", weight=0.01), only=Booked(50)) == "only"


def test_equal_workers_are_chosen_by_the_prompt() -> None:
    """Like prompts go to the same one, whichever router asks and however it lists the workers; different ones spread."""
    workers = [worker(f"10.0.0.{number}:8001") for number in range(8)]
    chosen: Counter[str] = Counter()
    for key in range(2000):
        request = REQUEST._replace(key=hash((key, key)))
        first = take(*workers, request=request)
        assert first == take(*reversed(workers), request=request)
        chosen[first] += 1
    assert max(chosen.values()) < 1.3 * 2000 / 8
    assert min(chosen.values()) > 0.7 * 2000 / 8


names = st.sampled_from("abcd")
loads = st.builds(Booked, st.integers(0, 100), st.integers(0, 10_000), st.integers(0, 12_000))
states = st.builds(
    WorkerState,
    names,
    slots=st.integers(1, 64),
    turns=st.integers(0, 80),
    used_blocks=st.integers(0, 10_000),
    total_blocks=st.sampled_from([0, 10_000]),
    block_tokens=st.just(32),
    cached_tokens=st.integers(0, 2000),
    weight=st.floats(0.01, 1),
    pace=st.floats(0.25, 4),
)


@given(state=states, load=loads, more=loads, cached=st.integers(0, 2000))
def test_more_load_never_attracts_and_more_cached_never_repels(state: WorkerState, load: Booked, more: Booked, cached: int) -> None:
    """Whatever the worker's state."""
    (offer,) = KvAware().price(State([state], RATES), REQUEST)
    (warmer,) = KvAware().price(State([state._replace(cached_tokens=max(cached, state.cached_tokens))], RATES), REQUEST)
    assert cost_of(offer, load.plus(more)) >= cost_of(offer, load)
    assert cost_of(warmer, load) <= cost_of(offer, load)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@settings(max_examples=examples(0.3))
@given(data=st.data())
def test_every_policy_chooses_one_of_the_workers(policy: Policy, data: st.DataObject) -> None:
    """And says what the turn would add there."""
    workers = data.draw(st.lists(states, min_size=1, unique_by=lambda state: state.name))
    booked = data.draw(st.dictionaries(names, loads))
    offer = choose(policy, State(workers, RATES), REQUEST, booked)
    (chosen,) = (state for state in workers if state.name == offer.worker)
    assert offer.cached_tokens == chosen.cached_tokens
    assert offer.load == Booked(1, 2000 - chosen.cached_tokens, -(-(2100 - chosen.cached_tokens) // 32))


def spread(policy: Policy, turns: int, workers: int) -> list[int]:
    """Turns by worker after so many came and none ended, the most loaded first."""
    booked, state = Sums(), State([worker(f"w{number}") for number in range(workers)], RATES)
    dice = random.Random(1)
    for _ in range(turns):
        offer = choose(policy, state, REQUEST._replace(key=dice.getrandbits(64)), booked)
        booked.change(offer.worker, offer.load, 1)
    return sorted((load.turns for load in booked.values()), reverse=True)


@pytest.mark.parametrize("policy", [KvAware(), LeastLoaded(), RoundRobin()], ids=lambda policy: type(policy).__name__)
def test_equal_turns_spread_evenly(policy: Policy) -> None:
    """Over equal workers."""
    assert spread(policy, 256, 16) == [16] * 16


def test_two_choices_leave_no_long_queue() -> None:
    """The longest is but a little longer than the mean, far from what one random choice gives."""
    dice = random.Random(1)
    one = max(Counter(dice.randrange(64) for _ in range(640)).values())
    assert spread(TwoChoices(random.Random(1)), 640, 64)[0] <= 13 < 16 <= one  # noqa: PLR0133 - the gap between both


def test_rates_are_those_of_the_time_model() -> None:
    """Learnt from what the workers tell."""
    times, dice = TimeModel(), random.Random(1)
    for _ in range(2000):
        new, batch = dice.randrange(100, 3000), dice.randrange(1, 100)
        step_s = 0.01 + batch * 2e-4
        times.observe(Timing(new, new + 500, 101, 0.01 + new * 1e-4, 100 * step_s, batch))
    rates = read_rates(times)
    assert rates.token_s == pytest.approx(1e-4, rel=0.05)
    assert rates.sequence_s == pytest.approx(2e-4, rel=0.05)
    assert rates.step_s == pytest.approx(0.02, rel=0.2)


def test_a_workers_pace_is_learnt() -> None:
    """From how long its turns took against what was expected; one stall counts little, and what says nothing, nothing."""
    paces = Paces()
    assert paces.read("a") == 1.0
    for _ in range(60):
        paces.observe("a", 2.0, 1.0)
        paces.observe("b", 0.0, 1.0)
    paces.observe("a", 1000.0, 1.0)
    assert paces.read("a") == pytest.approx(2.0, rel=0.1)
    assert paces.read("b") == 1.0
    paces.forget("a")
    assert paces.read("a") == 1.0

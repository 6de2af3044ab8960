"""The virtual token counters: who is next, what is charged, and the bound on unfairness."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.admission.fair import Account, Bill, Counters, Prices
from tests.budget import examples

PRICES = Prices(prompt=1.0, output=2.0)
LONGEST_PROMPT, LONGEST_OUTPUT, SLOTS = 50, 30, 3


def new_counters() -> Counters:
    return Counters(PRICES)


def test_the_tenant_with_less_service_goes_next() -> None:
    """A dispatch raises the tenant's counter, so the other is next."""
    counters = new_counters()
    a, b = counters.join("a", 1.0), counters.join("b", 1.0)
    counters.join("a", 1.0)
    assert counters.next() is a
    counters.dispatch(a, 10, 5)
    assert counters.next() is b


def test_prompt_and_expected_output_are_charged_at_dispatch() -> None:
    """Work under way counts at once, before a token was produced."""
    counters = new_counters()
    account = counters.join("a", 1.0)
    counters.dispatch(account, 10, 5)
    assert account.counter == 10 + 2 * 5


def test_tokens_are_charged_only_beyond_what_was_expected() -> None:
    """The first five of seven tokens were paid at dispatch."""
    counters = new_counters()
    account = counters.join("a", 1.0)
    bill = counters.dispatch(account, 10, 5)
    bill.add_output(5)
    assert account.counter == 20
    bill.add_output(2)
    assert account.counter == 24


def test_what_was_not_produced_is_taken_back_at_the_end() -> None:
    """A short answer costs its prompt and its tokens, however often it is settled."""
    counters = new_counters()
    account = counters.join("a", 1.0)
    bill = counters.dispatch(account, 10, 5)
    bill.add_output(1)
    bill.settle()
    bill.settle()
    assert account.counter == 12


def test_tokens_found_in_the_cache_cost_nothing() -> None:
    """The worker's word on its cache replaces what was expected at dispatch."""
    counters = new_counters()
    account = counters.join("a", 1.0)
    bill = counters.dispatch(account, 10, 0)
    bill.set_prompt(3)
    assert account.counter == 3


def test_a_turn_that_reached_no_worker_costs_nothing() -> None:
    """Cancelling the bill takes everything back."""
    counters = new_counters()
    account = counters.join("a", 1.0)
    counters.dispatch(account, 10, 5).cancel()
    assert account.counter == 0


def test_weight_divides_the_charge() -> None:
    """A tenant with weight two pays half for the same turn."""
    counters = new_counters()
    account = counters.join("a", 2.0)
    counters.dispatch(account, 10, 5)
    assert account.counter == 10


def test_idling_earns_no_credit_while_others_wait() -> None:
    """A newcomer starts at the smallest counter of those that wait."""
    counters = new_counters()
    a = counters.join("a", 1.0)
    counters.join("a", 1.0)
    counters.dispatch(a, 100, 0)
    assert counters.join("b", 1.0).counter == 100


def test_idling_earns_no_credit_when_nobody_waits() -> None:
    """A newcomer to an empty queue starts where the last that left stands."""
    counters = new_counters()
    counters.dispatch(counters.join("a", 1.0), 100, 0)
    assert counters.join("b", 1.0).counter == 100


def test_a_pause_does_not_forgive_use() -> None:
    """Coming back never lowers a counter."""
    counters = new_counters()
    a = counters.join("a", 1.0)
    counters.dispatch(a, 1000, 0)
    counters.leave(counters.join("b", 1.0))
    assert counters.join("a", 1.0).counter == 1000


def test_idle_accounts_are_forgotten() -> None:
    """Memory follows the tenants in use, not all that ever came."""
    counters = new_counters()
    for number in range(20_000):
        account = counters.join(str(number), 1.0)
        bill = counters.dispatch(account, 10, 0)
        bill.settle()
        counters.end(account)
    assert len(counters.accounts) <= 2048


@dataclass
class Turn:
    """A dispatched turn and its actual output still to come."""

    account: Account
    bill: Bill
    left: int


@dataclass
class Backlogged:
    """Tenants that always wait, on a few slots: serves turns of the given sizes and keeps what each tenant got."""

    weights: dict[str, float]

    def __post_init__(self) -> None:
        self.counters = new_counters()
        self.service = dict.fromkeys(self.weights, 0.0)
        self.running: list[Turn] = []
        for tenant, weight in self.weights.items():
            self.counters.join(tenant, weight)

    def dispatch(self, prompt: int, expected: int, output: int) -> None:
        account = self.counters.next()
        self.counters.join(account.tenant, account.weight)
        self.running.append(Turn(account, self.counters.dispatch(account, prompt, expected), output))
        self.service[account.tenant] += PRICES.of(prompt, 0)

    def step(self) -> None:
        for turn in self.running:
            turn.left -= 1
            turn.bill.add_output(1)
            self.service[turn.account.tenant] += PRICES.of(0, 1)
            if not turn.left:
                turn.bill.settle()
                self.counters.end(turn.account)
        self.running = [turn for turn in self.running if turn.left]

    def gap(self) -> float:
        """The largest difference of service, each divided by its tenant's weight."""
        shares = [self.service[tenant] / weight for tenant, weight in self.weights.items()]
        return max(shares) - min(shares)


sizes = st.tuples(st.integers(1, LONGEST_PROMPT), st.integers(0, LONGEST_OUTPUT), st.integers(1, LONGEST_OUTPUT))
weights = st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=2, max_size=4)


@given(st.lists(sizes, min_size=1, max_size=80), weights)
@settings(max_examples=examples(1.5), deadline=None)
def test_the_bound_holds_for_all_tenants_that_wait(turns: list[tuple[int, int, int]], shares: list[float]) -> None:
    """Over any interval from any start, service by weight of two waiting tenants differs by at most 2 U; see fair.py."""
    bound = PRICES.of(LONGEST_PROMPT, SLOTS * LONGEST_OUTPUT)
    pool = Backlogged({str(at): share for at, share in enumerate(shares)})
    for prompt, expected, output in turns:
        while len(pool.running) >= SLOTS:
            pool.step()
            assert pool.gap() <= bound, "U from a common start, hence 2 U between any two moments"
        pool.dispatch(prompt, expected, output)
        assert pool.gap() <= bound


@pytest.mark.parametrize("expected_share", [0.0, 1.0, 2.0])
def test_request_size_does_not_buy_service(expected_share: float) -> None:
    """Two tenants with turns of 10:1 in size get the same service, whether lengths are predicted well, too long or not at all."""
    pool = Backlogged({"large": 1.0, "small": 1.0})
    for _ in range(4000):
        while len(pool.running) >= SLOTS:
            pool.step()
        prompt, output = (500, 200) if pool.counters.next().tenant == "large" else (50, 20)
        pool.dispatch(prompt, int(output * expected_share), output)
    assert pool.service["large"] / pool.service["small"] == pytest.approx(1.0, abs=0.1)

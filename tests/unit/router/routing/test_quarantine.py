"""Requests that kill workers are tried no more, and second tries have a budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.routing.quarantine import Quarantine, Suspect, digest
from router.routing.retries import RetryBudget

KILLER, OTHER = digest("acme", [1, 2, 3]), digest("acme", [4, 5])


def test_a_request_that_was_there_twice_is_held() -> None:
    """After the second worker was lost, not after the first."""
    quarantine = Quarantine()
    quarantine.suspect([Suspect(KILLER, has_tokens=False)], 0.0)
    assert not quarantine.holds(KILLER, 0.0)
    quarantine.suspect([Suspect(KILLER, has_tokens=False)], 1.0)
    assert quarantine.holds(KILLER, 1.0)
    assert not quarantine.holds(OTHER, 1.0)


def test_those_that_were_well_on_their_way_are_no_suspects() -> None:
    """When the worker had just begun another: that one is the suspect."""
    quarantine = Quarantine()
    for _ in range(2):
        quarantine.suspect([Suspect(OTHER, has_tokens=True), Suspect(KILLER, has_tokens=False)], 0.0)
    assert (quarantine.holds(KILLER, 0.0), quarantine.holds(OTHER, 0.0)) == (True, False)


def test_a_request_may_kill_in_its_middle() -> None:
    """If all that ran had tokens, all are suspects."""
    quarantine = Quarantine()
    quarantine.suspect([Suspect(KILLER, has_tokens=True), Suspect(OTHER, has_tokens=True)], 0.0)
    quarantine.suspect([Suspect(KILLER, has_tokens=True)], 1.0)
    assert (quarantine.holds(KILLER, 1.0), quarantine.holds(OTHER, 1.0)) == (True, False)


def test_a_loss_counts_once_for_equal_requests() -> None:
    """A caller that sends a prompt many times at once is not held because of one loss."""
    quarantine = Quarantine()
    quarantine.suspect([Suspect(KILLER, has_tokens=False)] * 5, 0.0)
    assert not quarantine.holds(KILLER, 0.0)


def test_completing_clears() -> None:
    """The request ran to its end: it was not the one."""
    quarantine = Quarantine()
    quarantine.suspect([Suspect(KILLER, has_tokens=True)], 0.0)
    quarantine.clear(KILLER)
    quarantine.suspect([Suspect(KILLER, has_tokens=True)], 1.0)
    assert not quarantine.holds(KILLER, 1.0)


def test_suspicion_ends() -> None:
    """After ten minutes the request may be tried again, and its next loss is a first one."""
    quarantine = Quarantine()
    for now in (0.0, 1.0):
        quarantine.suspect([Suspect(KILLER, has_tokens=True)], now)
    assert quarantine.holds(KILLER, 600.0)
    assert not quarantine.holds(KILLER, 601.0)
    quarantine.suspect([Suspect(KILLER, has_tokens=True)], 700.0)
    assert not quarantine.holds(KILLER, 700.0)


def test_suspects_are_bounded() -> None:
    """The oldest are forgotten."""
    quarantine = Quarantine(length=3)
    for number in range(10):
        quarantine.suspect([Suspect(digest("acme", [number]), has_tokens=True)], 0.0)
    assert len(quarantine) == 3


def test_a_digest_is_the_tenants_and_the_prompts() -> None:
    """Equal for equal ones, and it holds no token."""
    assert digest("acme", [1, 2, 3]) == KILLER
    assert len({KILLER, digest("globex", [1, 2, 3]), digest("acme", [1, 2]), digest("acme", [])}) == 4
    assert len(KILLER) == 16


def test_few_requests_leave_the_reserve() -> None:
    """As many as one worker runs at once may be tried again when it is lost."""
    budget = RetryBudget(share=0.2, reserve=32)
    budget.count_request(0.0)
    assert [budget.take(0.0) for _ in range(40)].count(True) == 32


def test_many_requests_leave_a_share() -> None:
    """In an outage a fifth of all, beside the reserve."""
    budget = RetryBudget(share=0.2, reserve=10)
    for _ in range(1000):
        budget.count_request(0.0)
    assert [budget.take(0.5) for _ in range(1000)].count(True) == 210


def test_the_budget_comes_back() -> None:
    """When the window has passed."""
    budget = RetryBudget(share=0.2, reserve=1, window_s=10.0)
    assert [budget.take(now) for now in (0.0, 5.0, 9.5, 10.5)] == [True, False, False, True]


@given(
    steps=st.lists(st.tuples(st.booleans(), st.floats(0, 2)), max_size=100),
    share=st.floats(0, 1),
    reserve=st.integers(0, 5),
)
def test_a_window_never_has_more(steps: list[tuple[bool, float]], share: float, reserve: int) -> None:
    """Of the second tries in the last slots of any moment, whatever came before."""
    budget, now = RetryBudget(share=share, reserve=reserve, window_s=10.0), 0.0
    requests, retries = list[int](), list[int]()
    for is_request, wait_s in steps:
        now += wait_s
        if is_request:
            budget.count_request(now)
            requests.append(int(now))
        elif budget.take(now):
            retries.append(int(now))
            since = int(now) - 10
            assert sum(at > since for at in retries) <= reserve + share * sum(at > since for at in requests)

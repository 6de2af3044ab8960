"""The shared store is away: what is refused, what goes on, and that nothing is forgotten."""

from __future__ import annotations

import pytest

from router.errors import RouterError
from router.quota.estimate import OutputEstimator
from router.quota.failover import FailClosed, FailOpen
from router.quota.limits import Amounts, Limits, Subject, SubjectKind
from router.quota.memory import MemoryStore
from router.quota.quota import Ask, QuotaExceeded, StoredQuota
from tests.unit.router.quota.fake_store import HandClock, RemoteStore

ACME = Subject(SubjectKind.TENANT, "acme", Limits(requests_per_minute=5, tokens_per_day=1_000))
FORBIDDEN = Subject(SubjectKind.TENANT, "nobody", Limits(requests_per_minute=0))


def ask(number: int) -> Ask:
    return Ask(f"turn-{number}", "acme", "small", 10, 100)


async def test_closed_refuses_new_turns_and_takes_them_back() -> None:
    """Nothing new starts, and what the store may have booked meanwhile is settled with nothing."""
    remote = RemoteStore(HandClock())
    quota = StoredQuota(FailClosed(remote), OutputEstimator())
    remote.away = True
    with pytest.raises(RouterError) as refused:
        await quota.reserve([ACME], ask(1))
    assert (refused.value.reason, refused.value.retry_after_s) == ("QUOTA_UNAVAILABLE", 1.0)
    assert remote.settled == {"turn-1": Amounts()}


@pytest.mark.parametrize("policy", ["closed", "open"])
async def test_running_turns_go_on(policy: str) -> None:
    """Under either policy an answer that was granted is finished and settled with all it produced."""
    clock = HandClock()
    remote = RemoteStore(clock)
    store = FailClosed(remote) if policy == "closed" else FailOpen(remote, MemoryStore(clock), routers=2)
    async with await StoredQuota(store, OutputEstimator(default=20)).reserve([ACME], ask(1)) as hold:
        remote.away = True
        hold.count(20)
        assert hold.uncovered()
        assert await hold.extend(30)
        hold.count(30)
    assert remote.settled == {"turn-1": Amounts(1, 10, 50)}


async def test_open_grants_this_routers_share() -> None:
    """Of a limit of five, one of two routers grants three; a limit of zero stays zero; all that ran is charged to the shared store."""
    clock = HandClock()
    remote, local = RemoteStore(clock), MemoryStore(clock)
    quota = StoredQuota(FailOpen(remote, local, routers=2), OutputEstimator(default=20))
    remote.away = True
    for number in range(3):
        async with await quota.reserve([ACME], ask(number)) as hold:
            hold.count(20)
            assert await hold.extend(10)
    for subject, refused in ((ACME, ask(3)), (FORBIDDEN, ask(4))):
        with pytest.raises(QuotaExceeded):
            await quota.reserve([subject], refused)
    assert list(remote.settled.values()) == [Amounts(1, 10, 20)] * 3 + [Amounts()] * 2
    assert local.holds == 0


async def test_a_turn_granted_here_stays_here() -> None:
    """When the shared store is back while it runs, its extensions still count against the share it was granted from."""
    clock = HandClock()
    remote, local = RemoteStore(clock), MemoryStore(clock)
    quota = StoredQuota(FailOpen(remote, local, routers=1), OutputEstimator(default=20))
    remote.away = True
    async with await quota.reserve([ACME], ask(1)) as hold:
        remote.away = False
        assert await hold.extend(40)
        used = {bound.rule.name: local.count_used(bound) for bound in ACME.bounds}
        assert used == {"requests_per_minute": 1, "tokens_per_day": 70}

"""Identity, quota and ledger without a database: a caller who is always the same, limits that a test sets, entries in a list."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import cast

from router.auth.authenticate import Headers
from router.auth.keys import KeyHash
from router.auth.mtls import Peer
from router.auth.principal import Principal, Role
from router.ledger.entry import UsageEntry
from router.quota.estimate import OutputEstimator
from router.quota.limits import FREE, Limits, Price, Subject, SubjectKind
from router.quota.memory import MemoryStore
from router.quota.quota import StoredQuota
from router.quota.terms import Terms
from router.spending import Spending
from router.store.rows import PriceRow, QuotaRow, TermRows

ANN = Principal("acme", "ann", frozenset({Role.CALLER}))


class FakeAuthenticator:
    """Everybody is the same; raises `refusal` once it is set."""

    def __init__(self, who: Principal = ANN) -> None:
        self.who = who
        self.refusal: Exception | None = None

    async def identify(self, headers: Headers, peer: Peer, request_id: str = "") -> Principal:
        if self.refusal:
            raise self.refusal
        return self.who


class FakeBook:
    """A ledger in memory."""

    def __init__(self) -> None:
        self.entries: list[UsageEntry] = []
        self.lost: list[UsageEntry] = []
        self.running: dict[str, Callable[[], UsageEntry]] = {}
        self.full: Exception | None = None

    def require_room(self) -> None:
        if self.full:
            raise self.full

    def begin(self, turn: str, describe: Callable[[], UsageEntry]) -> None:
        self.running[turn] = describe

    def recover(self, entry: UsageEntry) -> None:
        self.lost.append(entry)

    def record(self, entry: UsageEntry) -> None:
        del self.running[entry.turn]
        self.entries.append(entry)

    async def durable(self, within_s: float | None = None) -> None:
        """At once."""


class FakeTerms:
    """The same terms for everybody."""

    def __init__(self) -> None:
        self.limits = Limits()
        self.price: Price = FREE
        self.weight = 1.0
        self.allow_downgrades = True

    def find_subjects(self, tenant: str, user: str, key: str, model: str) -> tuple[Subject, ...]:
        return (Subject(SubjectKind.TENANT, tenant, self.limits),)

    def find_price(self, model: str) -> Price:
        return self.price

    def find_weight(self, tenant: str) -> float:
        return self.weight

    def may_downgrade(self, tenant: str) -> bool:
        return self.allow_downgrades


class FakeSpending:
    """A real Spending on the fakes above, and its real counters in memory."""

    def __init__(self, *, guess: int = 256, clock_ms: Callable[[], int] = lambda: 0) -> None:
        self.terms = FakeTerms()
        self.book = FakeBook()
        self.keys = KeyHash(b"pepper" * 8)
        self.store = MemoryStore(clock_ms)
        quota = StoredQuota(self.store, OutputEstimator(default=guess))
        self._spending = Spending(cast(Terms, self.terms), quota, self.book, self.keys, router="router-1", now=lambda: 1000.0)

    def as_spending(self) -> Spending:
        return self._spending

    @property
    def entries(self) -> list[UsageEntry]:
        return self.book.entries

    def used(self) -> Mapping[str, int]:
        """What each limit of the terms counts, by its name."""
        return {
            bound.rule.name: self.store.count_used(bound) for bound in Subject(SubjectKind.TENANT, ANN.tenant, self.terms.limits).bounds
        }


class FakeTermsSource:
    """Terms as a database would give them."""

    def __init__(
        self,
        quotas: Sequence[QuotaRow] = (),
        prices: Sequence[PriceRow] = (),
        weights: Mapping[str, float] | None = None,
        no_downgrade: Sequence[str] = (),
        drained: Collection[str] = (),
    ) -> None:
        self.version = 1
        self.reads = 0
        self.error: Exception | None = None
        self.rows = TermRows(list(quotas), list(prices), weights or {}, frozenset(no_downgrade), frozenset(drained))

    async def read_version(self) -> int:
        if self.error:
            raise self.error
        return self.version

    async def read_all(self) -> TermRows:
        self.reads += 1
        return self.rows

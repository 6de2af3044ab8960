"""The terms of service as this router knows them: limits, prices, shares, downgrades and drained workers, all in memory.

They change rarely and are asked for with every turn, so a router keeps them whole and asks the database a few times a second for one number
that every change raises. While the database is away the last ones stay in force.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from typing import Protocol
from urllib.parse import quote

from router.quota.limits import Limits, Price, Subject, SubjectKind
from router.store.follower import Follower
from router.store.rows import PriceRow, QuotaRow, TermRows

_MICROS = 1_000_000


class TermsSource(Protocol):
    """Where terms are read; router.store.terms in production. Raises RouterError when it is away."""

    async def read_version(self) -> int:
        """A number that every change raises."""
        ...

    async def read_all(self) -> TermRows:
        """All terms."""
        ...


@dataclass(frozen=True, slots=True)
class _Prices:
    """The prices of one model by the time from which they hold, in seconds since 1970, rising."""

    starts: list[float] = field(default_factory=list)
    prices: list[Price] = field(default_factory=list)

    def at(self, now: float) -> Price | None:
        found = bisect_right(self.starts, now)
        return self.prices[found - 1] if found else None


class Terms:
    """Who is limited how, what tokens cost, how tenants share the queue, and whose turns may be downgraded. Use it inside `running()`."""

    def __init__(
        self,
        source: TermsSource,
        now: Callable[[], float],
        on_drained: Callable[[frozenset[str]], None] = lambda drained: None,
        poll_s: float = 0.5,
    ) -> None:
        """`on_drained` takes the addresses of drained workers whenever terms were read, and must not wait."""
        self._source = source
        self._now = now
        self._on_drained = on_drained
        self._follower = Follower(self.refresh, poll_s, "limits and prices cannot be read; the last ones stay in force")
        self._version = -1
        self._subjects: Mapping[tuple[str, ...], Subject] = {}
        self._prices: Mapping[str, _Prices] = {}
        self._weights: Mapping[str, float] = {}
        self._no_downgrade: frozenset[str] = frozenset()
        self.drained: frozenset[str] = frozenset()
        """Addresses of workers that get no new turns."""

    @property
    def is_stale(self) -> bool:
        """Whether the last look for changes failed."""
        return self._follower.is_stale

    def find_subjects(self, tenant: str, user: str, key: str, model: str) -> tuple[Subject, ...]:
        """All whose limits a turn comes under."""
        scopes = product(*(dict.fromkeys((name, "")) for name in (user, key, model)))
        return tuple(subject for scope in scopes if (subject := self._subjects.get((tenant, *scope))))

    def find_price(self, model: str) -> Price | None:
        """What a model costs now; None when it has no price."""
        prices = self._prices.get(model)
        return prices.at(self._now()) if prices else None

    def find_weight(self, tenant: str) -> float:
        """A tenant's share in the queue."""
        return self._weights.get(tenant, 1.0)

    def may_downgrade(self, tenant: str) -> bool:
        """Whether a smaller model may answer in place of the one that a tenant asks for."""
        return tenant not in self._no_downgrade

    async def refresh(self) -> None:
        """Reads the terms if they have changed. Raises RouterError when the source is away."""
        version = await self._source.read_version()
        if version == self._version:
            return
        rows = await self._source.read_all()
        self._subjects = {(row.tenant, row.user, row.key, row.model): read_subject(row) for row in rows.quotas}
        self._prices = _group_prices(rows.prices)
        self._weights = rows.weights
        self._no_downgrade = rows.no_downgrade
        self.drained = rows.drained
        self._on_drained(self.drained)
        self._version = version  # as of before the reading: what changed meanwhile is read again

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Terms]:
        """Reads the terms once, and then whenever they change. Raises RouterError when the source is away at first."""
        await self.refresh()
        async with self._follower.running():
            yield self


def read_subject(row: QuotaRow) -> Subject:
    """Whose limits a row holds: the narrowest thing that it names."""
    kinds = ((row.model, SubjectKind.MODEL), (row.key, SubjectKind.KEY), (row.user, SubjectKind.USER))
    kind = next((kind for name, kind in kinds if name), SubjectKind.TENANT)
    name = "/".join(quote(part, safe="") for part in (row.tenant, row.user, row.key, row.model))
    limits = Limits(
        row.requests_per_minute,
        row.input_tokens_per_minute,
        row.output_tokens_per_minute,
        row.tokens_per_day,
        row.concurrent_turns,
        None if row.money_per_month is None else _to_micros(row.money_per_month),
    )
    return Subject(kind, name, limits)


def _group_prices(rows: Iterable[PriceRow]) -> Mapping[str, _Prices]:
    grouped: defaultdict[str, _Prices] = defaultdict(_Prices)
    for row in sorted(rows, key=_start_of):
        grouped[row.model].starts.append(_start_of(row))
        grouped[row.model].prices.append(Price(*_read_price(row)))
    return grouped


def _read_price(row: PriceRow) -> Sequence[int]:
    return [_to_micros(money) for money in (row.prompt, row.completion, row.cached)]


def _start_of(row: PriceRow) -> float:
    return row.valid_from.timestamp()


def _to_micros(money: Decimal) -> int:
    return int(money * _MICROS)

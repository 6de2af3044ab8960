"""Queries on the terms of service: quotas and prices, and a number that rises with every change of them and of drained workers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import psycopg

from router.errors import unknown
from router.store.database import Queries
from router.store.drains import DrainStore
from router.store.page import ALL, Page
from router.store.rows import PriceRow, QuotaRow, TermRows

_PUT_QUOTA = """
    INSERT INTO quotas (tenant, "user", key, model, requests_per_minute, input_tokens_per_minute, output_tokens_per_minute,
                        tokens_per_day, concurrent_turns, money_per_month)
    VALUES (%(tenant)s, %(user)s, %(key)s, %(model)s, %(requests_per_minute)s, %(input_tokens_per_minute)s, %(output_tokens_per_minute)s,
            %(tokens_per_day)s, %(concurrent_turns)s, %(money_per_month)s)
    ON CONFLICT (tenant, "user", key, model) DO UPDATE SET
        requests_per_minute = excluded.requests_per_minute,
        input_tokens_per_minute = excluded.input_tokens_per_minute,
        output_tokens_per_minute = excluded.output_tokens_per_minute,
        tokens_per_day = excluded.tokens_per_day,
        concurrent_turns = excluded.concurrent_turns,
        money_per_month = excluded.money_per_month
"""
_LIST_QUOTAS = """
    SELECT * FROM quotas WHERE (%s::text IS NULL OR tenant = %s) AND (tenant, "user", key, model) > (%s, %s, %s, %s)
    ORDER BY tenant, "user", key, model LIMIT %s
"""
_ADD_PRICE = """
    INSERT INTO prices (model, valid_from, prompt, cached, completion)
    VALUES (%(model)s, %(valid_from)s, %(prompt)s, %(cached)s, %(completion)s)
    ON CONFLICT DO NOTHING
"""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Version:
    version: int


@dataclass(frozen=True, slots=True)
class _Tenant:
    id: str
    weight: float
    no_downgrade: bool


class QuotaStore:
    """Limits by scope. Every method raises StoreAway."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def put(self, quota: QuotaRow) -> None:
        """Sets all limits of a scope. Raises CallerError TENANT_UNKNOWN."""
        try:
            await self._queries.execute(_PUT_QUOTA, asdict(quota))
        except psycopg.errors.ForeignKeyViolation:
            raise unknown("tenant", "tenant_id") from None

    async def delete(self, tenant: str, user: str = "", key: str = "", model: str = "") -> bool:
        """Lifts the limits of a scope. Whether it had some."""
        statement = 'DELETE FROM quotas WHERE tenant = %s AND "user" = %s AND key = %s AND model = %s'
        return await self._queries.execute(statement, [tenant, user, key, model]) > 0

    async def list_all(self, tenant: str | None = None, page: Page = ALL) -> list[QuotaRow]:
        """The limits of a tenant, or of all, by scope."""
        return await self._queries.fetch(QuotaRow, _LIST_QUOTAS, [tenant, tenant, *(page.after or [""] * 4), page.limit])


class PriceStore:
    """What tokens cost. Every method raises StoreAway."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def add(self, price: PriceRow) -> bool:
        """Adds a price. False when the model already has one from that very time: prices are not changed after the fact."""
        return await self._queries.execute(_ADD_PRICE, asdict(price)) > 0

    async def list_all(self, page: Page = ALL) -> list[PriceRow]:
        """Prices, past ones too, by model and time."""
        statement = "SELECT * FROM prices WHERE (model, valid_from) > (%s, %s) ORDER BY model, valid_from LIMIT %s"
        return await self._queries.fetch(PriceRow, statement, [*(page.after or ["", _LONG_AGO]), page.limit])


class TermsStore:
    """All terms at once, for routers that keep them in memory. Every method raises StoreAway."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def read_version(self) -> int:
        """A number that rises with every change of all that `read_all` gives. Read it first and them after: then none is missed."""
        return (await self._queries.fetch(_Version, "SELECT version FROM terms_version"))[0].version

    async def read_all(self) -> TermRows:
        """Every quota, price and drained worker, and what differs for single tenants."""
        tenants = await self._queries.fetch(_Tenant, "SELECT id, weight, no_downgrade FROM tenants WHERE weight <> 1 OR no_downgrade")
        quotas, prices = await QuotaStore(self._queries).list_all(), await PriceStore(self._queries).list_all()
        no_downgrade = frozenset(tenant.id for tenant in tenants if tenant.no_downgrade)
        drained = await DrainStore(self._queries).list_all()
        return TermRows(quotas, prices, {tenant.id: tenant.weight for tenant in tenants}, no_downgrade, drained)

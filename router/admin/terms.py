"""Administration of quotas and prices."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

from router.admin.audit import Action, note
from router.admin.checks import LIMITS, check_filter, check_future, check_id, check_limits, check_scope, require
from router.auth.principal import Principal
from router.errors import CallerError, Code, Violation, unknown
from router.store.database import Database, Transaction
from router.store.identity import IdentityStore
from router.store.page import Page
from router.store.rows import PriceRow, QuotaRow
from router.store.terms import PriceStore, QuotaStore


class TermsAdmin:
    """What callers may spend. Every method takes who asks, and raises CallerError PERMISSION_DENIED or FIELD_INVALID, and StoreAway."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    async def set_quota(self, who: Principal, quota: QuotaRow) -> None:
        """Sets all limits of a scope. Raises CallerError TENANT_UNKNOWN, KEY_UNKNOWN."""
        who.require_operator()
        require(check_scope("quota.scope", quota), check_limits("quota.limits", quota))
        async with self._database.transact() as change:
            await _check_key(change, quota)
            await QuotaStore(change).put(quota)
            await note(change, who, Action.QUOTA_SET, quota.tenant, describe_scope(quota), **_describe_limits(quota))

    async def delete_quota(self, who: Principal, scope: QuotaRow) -> None:
        """Lifts the limits of a scope. Raises CallerError QUOTA_UNKNOWN."""
        who.require_operator()
        require(check_scope("scope", scope))
        async with self._database.transact() as change:
            if not await QuotaStore(change).delete(scope.tenant, scope.user, scope.key, scope.model):
                raise unknown("quota", "scope")
            await note(change, who, Action.QUOTA_DELETED, scope.tenant, describe_scope(scope))

    async def list_quotas(self, who: Principal, tenant: str, page: Page) -> list[QuotaRow]:
        """Quotas by scope, of a tenant or, for operators, of all."""
        who.require_view(tenant)
        require(check_filter("tenant_id", tenant))
        return await QuotaStore(self._database).list_all(tenant or None, page)

    async def add_price(
        self, who: Principal, model: str, valid_from: datetime | None, amounts: tuple[Decimal, Decimal, Decimal]
    ) -> PriceRow:
        """Sets a model's price for a million prompt, cached and completion tokens, from now when there is no time. Raises PRICE_EXISTS."""
        who.require_operator()
        now = datetime.fromtimestamp(self._now(), UTC)
        require(check_id("price.model", model), check_future("price.valid_from", valid_from, now))
        price = PriceRow(model, valid_from or now, *amounts)
        async with self._database.transact() as change:
            if not await PriceStore(change).add(price):
                raise price_exists()
            await note(change, who, Action.PRICE_ADDED, "", model, **_describe_price(price))
        return price

    async def list_prices(self, who: Principal, page: Page) -> list[PriceRow]:
        """Prices by model and time."""
        who.require_operator()
        return await PriceStore(self._database).list_all(page)


def describe_scope(scope: QuotaRow) -> str:
    """A scope in one line: `user=ann model=large`, or `tenant` for all its use."""
    parts = {"user": scope.user, "key": scope.key, "model": scope.model}
    return " ".join(f"{name}={value}" for name, value in parts.items() if value) or "tenant"


def price_exists() -> CallerError:
    """The model has a price from that very time, which does not change."""
    text = "the model has a price from that time already"
    return CallerError(Code.ALREADY_EXISTS, "PRICE_EXISTS", text, violations=(Violation("price.valid_from", text),))


async def _check_key(change: Transaction, quota: QuotaRow) -> None:
    key = await IdentityStore(change).find_key(quota.key) if quota.key else None
    if quota.key and (key is None or key.tenant != quota.tenant):
        raise unknown("key", "quota.scope.key_prefix")


def _describe_limits(quota: QuotaRow) -> dict[str, object]:
    limits = {name: getattr(quota, name) for name in LIMITS}
    return {name: _to_json(limit) for name, limit in limits.items() if limit is not None}


def _describe_price(price: PriceRow) -> dict[str, object]:
    amounts = {name: _to_json(getattr(price, name)) for name in ("prompt", "cached", "completion")}
    return {"valid_from": price.valid_from.isoformat(), **amounts}


def _to_json(value: object) -> object:
    return f"{value:f}" if isinstance(value, Decimal) else value

"""Tenants, keys, limits and entries of a running router, put into and read from its database directly."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from router.auth.issue import KeyGrant, KeyIssuer
from router.auth.principal import Role
from router.store.identity import IdentityStore
from router.store.rows import PriceRow, QuotaRow, UsageRow
from router.store.terms import PriceStore, QuotaStore
from router.store.usage import UsageStore, Whose
from tests.bench.router import Router

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
SOON = datetime(2100, 1, 1, tzinfo=UTC)


async def make_key(router: Router, tenant: str = "acme", user: str = "ann", **grant: Any) -> str:
    """A new key's text; tenant and user are made when missing."""
    identities = IdentityStore(router.app.store.database)
    await identities.put_tenant(tenant, tenant)
    await identities.put_user(tenant, user, user)
    key = await KeyIssuer(identities, router.app.identity.keys, time.time).issue(KeyGrant(tenant, user, "test", **grant))
    return key.text


def bearer(key: str) -> tuple[tuple[str, str], ...]:
    """Metadata that shows a key."""
    return (("authorization", f"Bearer {key}"),)


def prefix_of(key: str) -> str:
    """The public part of a key."""
    return key.split("_")[1]


async def revoke(router: Router, key: str, tenant: str = "acme") -> None:
    """Ends a key, in the database only: routers find out by themselves."""
    assert await IdentityStore(router.app.store.database).revoke_key(tenant, prefix_of(key))


async def limit(router: Router, tenant: str = "acme", user: str = "", key: str = "", model: str = "", **limits: Any) -> None:
    """Sets limits, which are in force when this returns. `local` is who callers without a key are."""
    await IdentityStore(router.app.store.database).put_tenant(tenant, tenant)
    await QuotaStore(router.app.store.database).put(QuotaRow(tenant, user, key, model, **limits))
    await router.app.terms.refresh()


async def price(router: Router, prompt: str, cached: str, completion: str, model: str = "test") -> None:
    """Sets what a million tokens cost, from long ago on."""
    await PriceStore(router.app.store.database).add(PriceRow(model, LONG_AGO, Decimal(prompt), Decimal(cached), Decimal(completion)))
    await router.app.terms.refresh()


async def entries(router: Router, tenant: str = "") -> Sequence[UsageRow]:
    """All that the ledger holds, once all that was recorded is in the database."""
    await router.app.ledger.written()
    until = datetime.now(UTC) + timedelta(hours=1)
    return [row async for row in UsageStore(router.app.store.database).read(LONG_AGO, until, Whose(tenant))]


OPERATOR = frozenset({Role.CALLER, Role.OPERATOR})

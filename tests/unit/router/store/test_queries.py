"""Tenants, keys, quotas, prices and the audit log, in a real PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from router.errors import CallerError
from router.store.audit import AuditStore
from router.store.database import Database, StoreAway
from router.store.identity import IdentityStore
from router.store.page import Page
from router.store.rows import KeyDigests, KeyRow, PriceRow, QuotaRow, TenantRow
from router.store.terms import PriceStore, QuotaStore, TermsStore
from tests.bench.postgres import fresh_database, outage

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def key_of(prefix: str, tenant: str = "acme", user: str = "ann") -> KeyRow:
    return KeyRow(prefix, b"d" * 32, tenant, user, "laptop", ["caller"], None, NOW, None, None)


async def add_owner(database: Database, tenant: str = "acme", user: str = "ann") -> IdentityStore:
    store = IdentityStore(database)
    await store.put_tenant(tenant, tenant.title())
    await store.put_user(tenant, user, user.title())
    return store


async def test_a_key_comes_back_as_it_was_added() -> None:
    """Absent models stay "every model", and an unknown prefix finds nothing."""
    async with fresh_database() as (database, _):
        store = await add_owner(database)
        await store.add_key(key_of("p1"))
        assert await store.find_key("p1") == key_of("p1")
        assert await store.find_key("p2") is None
        with pytest.raises(ValueError, match="taken"):
            await store.add_key(key_of("p1"))


async def test_a_key_that_is_renewed_is_one_that_changed() -> None:
    """Once, and in nothing but its digests: to renew it as it is already changes nothing."""
    digests = KeyDigests(b"e" * 32, "old", b"f" * 32, "new")
    async with fresh_database() as (database, _):
        store = await add_owner(database)
        await store.add_key(key_of("p1"))
        await store.add_key(key_of("p2"))
        before = (await store.read_changes(NOW)).now
        await store.renew_key("p1", digests)
        changed = await store.read_changes(before)
        assert changed.keys == [replace(key_of("p1"), **asdict(digests))]
        await store.renew_key("p1", digests)
        assert (await store.read_changes(changed.now)).keys == []
        await store.renew_key("p1", KeyDigests(b"f" * 32, "new"))
        assert await store.find_key("p1") == replace(key_of("p1"), digest=b"f" * 32, pepper="new")


async def test_keys_without_a_pepper_are_listed() -> None:
    """Those of one tenant or of all, and none that has ended."""
    peppers: list[dict[str, Any]] = [
        {},
        {"pepper": "old"},
        {"pepper": "new"},
        {"pepper": "old", "next_digest": b"n" * 32, "next_pepper": "new"},
        {"pepper": "old", "revoked_at": NOW},
        {"pepper": "old", "expires_at": NOW},
        {"pepper": "old", "expires_at": datetime(2100, 1, 1, tzinfo=UTC)},
    ]
    async with fresh_database() as (database, _):
        store = await add_owner(database)
        await add_owner(database, "globex", "gus")
        for number, values in enumerate(peppers):
            await store.add_key(replace(key_of(f"p{number}"), **values))
        await store.add_key(key_of("q", "globex", "gus"))
        for tenant, listed in (("acme", ["p0", "p1", "p6"]), ("", ["p0", "p1", "p6", "q"]), ("none", [])):
            assert [key.prefix for key in await store.list_keys(tenant, without_pepper="new")] == listed
        assert len(await store.list_keys("")) == 8
        page = Page(2, (NOW, "p1"))
        assert [key.prefix for key in await store.list_keys("", page, without_pepper="new")] == ["p6", "q"]


async def test_owners_must_exist() -> None:
    """A user of no tenant, a key of no user and a quota of no tenant are told to the administrator."""
    async with fresh_database() as (database, _):
        store = await add_owner(database)
        for change, reason in (
            (store.put_user("none", "u"), "TENANT_UNKNOWN"),
            (store.add_key(key_of("p", user="bob")), "USER_UNKNOWN"),
            (QuotaStore(database).put(QuotaRow("none")), "TENANT_UNKNOWN"),
        ):
            with pytest.raises(CallerError, match="no such") as caught:
                await change
            assert caught.value.reason == reason


async def test_an_administrator_changes_keys_of_the_tenant_only() -> None:
    """Another tenant's prefix is as good as none."""
    async with fresh_database() as (database, _):
        store = await add_owner(database)
        await store.add_key(key_of("p1"))
        assert not await store.revoke_key("other", "p1")
        assert not await store.expire_key("other", "p1", NOW)
        assert not await store.restrict_key("other", "p1", [])
        assert await store.find_key("p1") == key_of("p1")


async def test_a_rotated_key_ends_no_later_than_it_would_have() -> None:
    """Expiry only moves forward in time to now."""
    async with fresh_database() as (database, _):
        store = await add_owner(database)
        await store.add_key(key_of("p1"))
        assert await store.expire_key("acme", "p1", NOW)
        assert await store.expire_key("acme", "p1", NOW + timedelta(days=9))
        found = await store.find_key("p1")
        assert found is not None
        assert found.expires_at == NOW


async def test_changes_name_keys_since_a_time_and_all_disabled_tenants() -> None:
    """What a router polls."""
    async with fresh_database() as (database, _):
        store = await add_owner(database)
        await store.add_key(key_of("p1"))
        later = (await store.read_changes(NOW)).now
        await store.add_key(key_of("p2"))
        await store.disable_tenant("acme")
        changes = await store.read_changes(later)
        assert (changes.keys, changes.disabled_tenants) == ([key_of("p2")], ["acme"])
        await store.disable_tenant("acme", disabled=False)
        assert (await store.read_changes(changes.now)).disabled_tenants == []


async def test_no_limit_differs_from_a_limit_of_zero() -> None:
    """Setting a scope's limits again replaces all of them."""
    async with fresh_database() as (database, _):
        await add_owner(database)
        store = QuotaStore(database)
        await store.put(QuotaRow("acme", requests_per_minute=5, money_per_month=Decimal("1.5")))
        await store.put(QuotaRow("acme", requests_per_minute=0))
        await store.put(QuotaRow("acme", model="m", concurrent_turns=1))
        assert await store.list_all("acme") == [QuotaRow("acme", requests_per_minute=0), QuotaRow("acme", model="m", concurrent_turns=1)]
        assert await store.delete("acme", model="m")
        assert not await store.delete("acme", model="m")


async def test_a_price_is_not_changed_after_the_fact() -> None:
    """A second price from the same moment is not taken."""
    price = PriceRow("m", NOW, Decimal("1"), Decimal("0.1"), Decimal("2"))
    async with fresh_database() as (database, _):
        store = PriceStore(database)
        assert await store.add(price)
        assert not await store.add(PriceRow("m", NOW, Decimal(9), Decimal(9), Decimal(9)))
        assert await store.list_all() == [price]


async def test_what_is_not_given_stays() -> None:
    """A tenant is renamed without losing its share, and given a share without losing its name; downgrades are allowed until forbidden."""
    async with fresh_database() as (database, _):
        store = IdentityStore(database)
        for given, expected in (((), ("acme", 1.0)), (("Acme", None), ("Acme", 1.0)), ((None, 2.5), ("Acme", 2.5)), ((), ("Acme", 2.5))):
            row = await store.put_tenant("acme", *given)
            assert (row.name, row.weight) == expected
            assert await store.list_tenants() == [row]
        for no_downgrade, kept in ((None, False), (True, True), (None, True), (False, False)):
            assert (await store.put_tenant("acme", no_downgrade=no_downgrade)).no_downgrade is kept
        for names, name in (((), "ann"), (("Ann",), "Ann"), ((), "Ann")):
            user = await store.put_user("acme", "ann", *names)
            assert user.name == name
            assert await store.list_users("acme") == [user]


async def test_a_weight_that_would_break_fairness_is_refused() -> None:
    """By the database too, which an operator may change by hand."""
    async with fresh_database() as (database, _):
        for weight in (0.0, -1.0, float("nan"), float("inf")):
            with pytest.raises(psycopg.errors.CheckViolation):
                await IdentityStore(database).put_tenant("acme", "Acme", weight)


async def test_every_change_of_terms_raises_their_version() -> None:
    """Whoever makes it, and only when it is there to be read; users and keys are not terms."""
    async with fresh_database() as (database, _):
        store, terms, seen = await add_owner(database), TermsStore(database), [0]
        price = PriceRow("m", NOW, Decimal("1"), Decimal("0.1"), Decimal("2"))

        async def is_raised() -> bool:
            seen.append(await terms.read_version())
            return seen[-1] > seen[-2]

        assert await is_raised()
        for change in (
            store.put_tenant("acme", "Acme"),
            store.disable_tenant("acme"),
            QuotaStore(database).put(QuotaRow("acme", requests_per_minute=5)),
            QuotaStore(database).delete("acme"),
            PriceStore(database).add(price),
        ):
            await change
            assert await is_raised()
        await store.put_user("acme", "bob", "Bob")
        await store.add_key(key_of("p1"))
        assert not await is_raised()
        async with database.transact() as transaction:
            await QuotaStore(transaction).put(QuotaRow("acme", requests_per_minute=0))
            assert not await is_raised()
        assert await is_raised()


async def test_a_change_and_its_audit_line_are_one() -> None:
    """When the block fails neither is there, and what was audited cannot be changed."""
    async with fresh_database() as (database, _):
        with pytest.raises(RuntimeError):
            async with database.transact() as transaction:
                await IdentityStore(transaction).put_tenant("acme", "Acme")
                await AuditStore(transaction).write("root", "TENANT_ADDED", "acme", "acme")
                raise RuntimeError
        assert await IdentityStore(database).list_tenants() == []
        await AuditStore(database).write("root", "TENANT_ADDED", "acme", "acme", {"name": "Acme"})
        (row,) = await AuditStore(database).read("acme")
        assert (row.actor, row.action, row.detail) == ("root", "TENANT_ADDED", {"name": "Acme"})
        for statement in (b"UPDATE audit_log SET actor = ''", b"DELETE FROM audit_log", b"TRUNCATE audit_log"):
            with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
                async with database.connect() as connection:
                    await connection.execute(statement)


async def test_a_database_that_went_away_comes_back() -> None:
    """Its absence is one error, and no connection from before is used after."""
    async with fresh_database() as (database, dsn):
        store = await add_owner(database)
        async with outage(dsn):
            with pytest.raises(StoreAway):
                await store.list_tenants()
        assert [tenant.id for tenant in await when_back(store)] == ["acme"]


async def when_back(store: IdentityStore) -> list[TenantRow]:
    """The tenants, once there is a connection: after two failures the pool tries again in two seconds, and half a second is waited."""
    async with asyncio.timeout(10.0):
        while True:
            with contextlib.suppress(StoreAway):
                return await store.list_tenants()


@pytest.mark.parametrize("error", [None, psycopg.OperationalError("lost")])
async def test_a_cancellation_that_the_driver_loses_is_raised(error: Exception | None) -> None:
    """With or without an error of its own: the driver sometimes does so on Python 3.11, and a task that polls would then never end."""
    async with fresh_database() as (database, _):
        connected = asyncio.Event()

        async def lose() -> None:
            async with database.connect():
                connected.set()
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
                if error is not None:
                    raise error

        task = asyncio.create_task(lose())
        await connected.wait()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

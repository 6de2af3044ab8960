"""Changes by administrators: what each leaves in the audit log, and that a change and its line are one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from router.admin.identity import IdentityAdmin
from router.admin.terms import TermsAdmin
from router.admin.workers import WorkersAdmin
from router.auth.issue import KeyGrant
from router.auth.keys import KeyHash
from router.auth.principal import Principal, Role
from router.errors import CallerError
from router.store.audit import AuditStore
from router.store.database import Database
from router.store.identity import IdentityStore
from router.store.rows import QuotaRow
from tests.bench.postgres import fresh_database
from tests.unit.router.fake_worker import FakeWorker, fleet_of

NOW = 1_800_000_000.0
LATER = datetime.fromtimestamp(NOW, UTC) + timedelta(days=1)
EARLIER = datetime.fromtimestamp(NOW, UTC) - timedelta(seconds=1)
OPS = Principal("house", "ops", frozenset({Role.OPERATOR}), "opskey")
ADMIN = Principal("acme", "ada", frozenset({Role.TENANT_ADMIN}))
NARROW = replace(ADMIN, user="nat", key_id="natkey", models=frozenset({"small"}))
CALLER = Principal("acme", "ann", frozenset({Role.CALLER}))
GRANT = KeyGrant("acme", "ann", "laptop")
WORKER = "10.0.0.9:8001"
MONEY = (Decimal("1.5"), Decimal("0.15"), Decimal("3"))

Change = Callable[["Desk"], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Desk:
    """Administration of one database in which acme's ann has a key, and so has its operator oz."""

    database: Database
    identity: IdentityAdmin
    terms: TermsAdmin
    workers: WorkersAdmin
    key: str
    operators_key: str

    async def read_all(self) -> dict[str, Any]:
        """All that changes can change."""
        tables = ("tenants", "users", "keys", "quotas", "prices", "drained_workers", "audit_log", "terms_version")
        async with self.database.connect() as connection:
            return {table: await (await connection.execute(f"SELECT * FROM {table}".encode())).fetchall() for table in tables}


@asynccontextmanager
async def open_desk() -> AsyncIterator[Desk]:
    async with fresh_database() as (database, _):
        identity, terms = IdentityAdmin(database, KeyHash(b"p" * 32), lambda: NOW), TermsAdmin(database, lambda: NOW)
        workers = WorkersAdmin(database, {"m": fleet_of(FakeWorker(WORKER))}, lambda: ())
        for tenant in ("acme", "globex"):
            await identity.put_tenant(OPS, tenant, None, None)
        await identity.put_user(OPS, "acme", "ann", None)
        key = await identity.create_key(OPS, GRANT)
        operators_key = await identity.create_key(OPS, replace(GRANT, roles=frozenset(Role)))
        yield Desk(database, identity, terms, workers, key.prefix, operators_key.prefix)


CHANGES: list[tuple[Change, Principal, str, str, str, dict[str, Any]]] = [
    (
        lambda desk: desk.identity.put_tenant(OPS, "new", "New", 2.0, True),
        OPS,
        "TENANT_PUT",
        "new",
        "new",
        {"name": "New", "weight": 2.0, "no_downgrade": True},
    ),
    (
        lambda desk: desk.identity.put_tenant(OPS, "acme", None, 3.0),
        OPS,
        "TENANT_PUT",
        "acme",
        "acme",
        {"name": "acme", "weight": 3.0, "no_downgrade": False},
    ),
    (lambda desk: desk.identity.disable_tenant(OPS, "acme", disabled=True), OPS, "TENANT_DISABLED", "acme", "acme", {}),
    (lambda desk: desk.identity.disable_tenant(OPS, "acme", disabled=False), OPS, "TENANT_ENABLED", "acme", "acme", {}),
    (lambda desk: desk.identity.put_user(ADMIN, "acme", "bob", "Bob"), ADMIN, "USER_PUT", "acme", "bob", {"name": "Bob"}),
    (
        lambda desk: desk.identity.create_key(NARROW, replace(GRANT, models=["small", "small"], expires_at=LATER)),
        NARROW,
        "KEY_CREATED",
        "acme",
        "*",
        {"user": "ann", "name": "laptop", "roles": ["caller"], "models": ["small"], "expires_at": LATER.isoformat()},
    ),
    (
        lambda desk: desk.identity.rotate_key(ADMIN, "acme", desk.key, timedelta(hours=1)),
        ADMIN,
        "KEY_ROTATED",
        "acme",
        "key",
        {"new_key": "*", "overlap_s": 3600.0},
    ),
    (
        lambda desk: desk.identity.restrict_key(ADMIN, "acme", desk.key, ["b", "a"]),
        ADMIN,
        "KEY_RESTRICTED",
        "acme",
        "key",
        {"models": ["a", "b"]},
    ),
    (lambda desk: desk.identity.restrict_key(ADMIN, "acme", desk.key, None), ADMIN, "KEY_RESTRICTED", "acme", "key", {"models": None}),
    (lambda desk: desk.identity.revoke_key(NARROW, "acme", desk.key), NARROW, "KEY_REVOKED", "acme", "key", {}),
    (
        lambda desk: desk.terms.set_quota(OPS, QuotaRow("acme", "ann", model="m", requests_per_minute=0, money_per_month=Decimal("0.1"))),
        OPS,
        "QUOTA_SET",
        "acme",
        "user=ann model=m",
        {"requests_per_minute": 0, "money_per_month": "0.1"},
    ),
    (
        lambda desk: desk.terms.set_quota(OPS, QuotaRow("acme", key=desk.key, concurrent_turns=1)),
        OPS,
        "QUOTA_SET",
        "acme",
        "key=key",
        {"concurrent_turns": 1},
    ),
    (lambda desk: desk.terms.delete_quota(OPS, QuotaRow("acme", "ann", model="m")), OPS, "QUOTA_DELETED", "acme", "user=ann model=m", {}),
    (
        lambda desk: desk.terms.add_price(OPS, "m", LATER, MONEY),
        OPS,
        "PRICE_ADDED",
        "",
        "m",
        {"valid_from": LATER.isoformat(), "prompt": "1.5", "cached": "0.15", "completion": "3"},
    ),
    (lambda desk: desk.workers.drain(OPS, WORKER), OPS, "WORKER_DRAINED", "", WORKER, {}),
    (lambda desk: desk.workers.resume(OPS, WORKER), OPS, "WORKER_RESUMED", "", WORKER, {}),
]


async def test_every_change_leaves_one_line_in_the_audit_log() -> None:
    """Who, what, whose, and the new state; `*` stands for a new key's prefix, `key` for the old one's."""
    async with open_desk() as desk:
        for change, who, action, tenant, target, detail in CHANGES:
            before = await AuditStore(desk.database).read()
            done = await change(desk)
            line, *others = await AuditStore(desk.database).read()
            new = getattr(done, "prefix", "")
            assert others == before
            assert line.actor == {OPS: "house/ops (key opskey)", ADMIN: "acme/ada", NARROW: "acme/nat (key natkey)"}[who]
            assert (line.action, line.tenant) == (action, tenant)
            assert line.target == {"*": new, "key": desk.key, "key=key": f"key={desk.key}"}.get(target, target)
            assert line.detail == json.loads(json.dumps(detail).replace("*", new))


async def test_no_secret_gets_into_the_database() -> None:
    """Neither a key's text nor any part of it but its prefix, in any table; the digest only in the keys' own."""
    async with open_desk() as desk:
        made = [await desk.identity.create_key(ADMIN, GRANT), await desk.identity.rotate_key(ADMIN, "acme", desk.key, timedelta())]
        tables = await desk.read_all()
        for key in made:
            assert key.text[-43:] not in str(tables)
            tables.pop("keys", None)
            assert key.digests.digest.hex() not in str(tables)
            assert str(key.digests.digest) not in str(tables)


async def test_a_change_whose_line_cannot_be_written_is_none() -> None:
    """Whatever the change: nothing differs from before."""
    async with open_desk() as desk:
        await desk.terms.set_quota(OPS, QuotaRow("acme", "ann", model="m", requests_per_minute=1))
        await desk.workers.drain(OPS, WORKER)
        async with desk.database.connect() as connection:
            await connection.execute("ALTER TABLE audit_log ADD CHECK (false) NOT VALID")
        before = await desk.read_all()
        for change, *_ in CHANGES:
            with pytest.raises(psycopg.errors.CheckViolation):
                await change(desk)
            assert await desk.read_all() == before


REFUSALS: list[tuple[str, Change]] = [
    ("TENANT_UNKNOWN", lambda desk: desk.identity.disable_tenant(OPS, "none", disabled=True)),
    ("TENANT_UNKNOWN", lambda desk: desk.identity.put_user(OPS, "none", "bob", None)),
    ("TENANT_UNKNOWN", lambda desk: desk.terms.set_quota(OPS, QuotaRow("none", requests_per_minute=1))),
    ("USER_UNKNOWN", lambda desk: desk.identity.create_key(ADMIN, replace(GRANT, user="none"))),
    ("KEY_UNKNOWN", lambda desk: desk.identity.revoke_key(ADMIN, "acme", "none")),
    ("KEY_UNKNOWN", lambda desk: desk.identity.revoke_key(OPS, "globex", desk.key)),
    ("KEY_UNKNOWN", lambda desk: desk.identity.rotate_key(OPS, "globex", desk.key, timedelta())),
    ("KEY_UNKNOWN", lambda desk: desk.identity.restrict_key(OPS, "globex", desk.key, None)),
    ("KEY_UNKNOWN", lambda desk: desk.terms.set_quota(OPS, QuotaRow("globex", key=desk.key, requests_per_minute=1))),
    ("QUOTA_UNKNOWN", lambda desk: desk.terms.delete_quota(OPS, QuotaRow("acme"))),
    ("WORKER_UNKNOWN", lambda desk: desk.workers.drain(OPS, "10.0.0.8:8001")),
    ("WORKER_UNKNOWN", lambda desk: desk.workers.resume(OPS, WORKER)),
    ("PERMISSION_DENIED", lambda desk: desk.identity.create_key(ADMIN, replace(GRANT, roles=frozenset({Role.OPERATOR})))),
    ("PERMISSION_DENIED", lambda desk: desk.identity.create_key(NARROW, GRANT)),
    ("PERMISSION_DENIED", lambda desk: desk.identity.create_key(NARROW, replace(GRANT, models=["small", "large"]))),
    ("PERMISSION_DENIED", lambda desk: desk.identity.rotate_key(NARROW, "acme", desk.key, timedelta())),
    ("PERMISSION_DENIED", lambda desk: desk.identity.restrict_key(NARROW, "acme", desk.key, None)),
    ("PERMISSION_DENIED", lambda desk: desk.identity.rotate_key(ADMIN, "acme", desk.operators_key, timedelta())),
    ("PERMISSION_DENIED", lambda desk: desk.identity.revoke_key(ADMIN, "acme", desk.operators_key)),
    ("PERMISSION_DENIED", lambda desk: desk.identity.restrict_key(ADMIN, "acme", desk.operators_key, [])),
    ("FIELD_INVALID", lambda desk: desk.identity.disable_tenant(OPS, "house", disabled=True)),
    ("FIELD_INVALID", lambda desk: desk.identity.put_tenant(OPS, "", None, None)),
    ("FIELD_INVALID", lambda desk: desk.identity.put_tenant(OPS, "t", "bell\a", None)),
    ("FIELD_INVALID", lambda desk: desk.identity.put_tenant(OPS, "t", None, float("nan"))),
    ("FIELD_INVALID", lambda desk: desk.identity.create_key(OPS, replace(GRANT, expires_at=EARLIER))),
    ("FIELD_INVALID", lambda desk: desk.identity.rotate_key(OPS, "acme", desk.key, timedelta(days=91))),
    ("FIELD_INVALID", lambda desk: desk.terms.set_quota(OPS, QuotaRow("acme"))),
    ("FIELD_INVALID", lambda desk: desk.terms.add_price(OPS, "m", EARLIER, MONEY)),
]


async def test_resuming_a_worker_that_is_not_drained_is_not_called_unknown() -> None:
    """It may be serving, and whoever asks sees it in the list."""
    async with open_desk() as desk:
        with pytest.raises(CallerError, match="no worker of this address is drained"):
            await desk.workers.resume(OPS, WORKER)


async def test_a_refused_change_leaves_nothing() -> None:
    """Neither itself nor a line. Nobody gains by a key that is not theirs to give, to renew or to widen."""
    async with open_desk() as desk:
        before = await desk.read_all()
        for reason, change in REFUSALS:
            with pytest.raises(CallerError) as caught:
                await change(desk)
            assert caught.value.reason == reason
            assert await desk.read_all() == before


async def test_a_price_is_added_once() -> None:
    """From one time on a model has one price; without a time it is now."""
    async with open_desk() as desk:
        assert (await desk.terms.add_price(OPS, "m", None, MONEY)).valid_from.timestamp() == NOW
        before = await desk.read_all()
        with pytest.raises(CallerError) as caught:
            await desk.terms.add_price(OPS, "m", None, MONEY)
        assert (caught.value.reason, await desk.read_all()) == ("PRICE_EXISTS", before)


async def test_changes_of_one_key_wait_for_each_other() -> None:
    """A key that is rotated while it is being restricted passes the restriction on."""
    async with open_desk() as desk:
        async with desk.database.transact() as other:
            await IdentityStore(other).lock_key("acme", desk.key)
            rotation = asyncio.create_task(desk.identity.rotate_key(ADMIN, "acme", desk.key, timedelta()))
            await asyncio.wait({rotation}, timeout=0.05)
            assert not rotation.done()
            await IdentityStore(other).restrict_key("acme", desk.key, ["small"])
        found = await IdentityStore(desk.database).find_key((await rotation).prefix)
        assert found is not None
        assert found.models == ["small"]


async def test_a_key_that_has_ended_is_not_renewed() -> None:
    """Revoked, or rotated away before: its rights do not come back."""
    async with open_desk() as desk:
        await desk.identity.revoke_key(ADMIN, "acme", desk.key)
        rotated = await desk.identity.rotate_key(OPS, "acme", desk.operators_key, timedelta())
        for prefix in (desk.key, desk.operators_key):
            with pytest.raises(CallerError, match="no such key"):
                await desk.identity.rotate_key(OPS, "acme", prefix, timedelta())
        found = await IdentityStore(desk.database).find_key(rotated.prefix)
        assert found is not None
        assert set(found.roles) == {role.value for role in Role}

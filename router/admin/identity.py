"""Administration of tenants, users and keys."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from router.admin.audit import Action, note
from router.admin.checks import (
    check_filter,
    check_future,
    check_id,
    check_models,
    check_name,
    check_other,
    check_overlap,
    check_weight,
    require,
)
from router.auth.issue import KeyGrant, KeyIssuer
from router.auth.keys import KeyHash, NewKey
from router.auth.principal import Principal, read_roles
from router.errors import unknown
from router.store.database import Database, Transaction
from router.store.identity import IdentityStore
from router.store.page import Page
from router.store.rows import KeyRow, TenantRow, UserRow


class IdentityAdmin:
    """Who may call. Every method takes who asks, and raises CallerError PERMISSION_DENIED or FIELD_INVALID, and StoreAway."""

    def __init__(self, database: Database, keys: KeyHash, now: Callable[[], float]) -> None:
        self._database = database
        self._keys = keys
        self._now = now

    async def put_tenant(
        self, who: Principal, tenant: str, name: str | None, weight: float | None, no_downgrade: bool | None = None
    ) -> TenantRow:
        """Adds a tenant or changes it; None changes nothing."""
        who.require_operator()
        require(check_id("tenant_id", tenant), check_name("name", name), check_weight("weight", weight))
        async with self._database.transact() as change:
            row = await IdentityStore(change).put_tenant(tenant, name, weight, no_downgrade)
            detail = {"name": row.name, "weight": row.weight, "no_downgrade": row.no_downgrade}
            await note(change, who, Action.TENANT_PUT, tenant, tenant, **detail)
        return row

    async def disable_tenant(self, who: Principal, tenant: str, *, disabled: bool) -> None:
        """Shuts a tenant out, or lets it in again. Raises CallerError TENANT_UNKNOWN."""
        who.require_operator()
        require(check_id("tenant_id", tenant), check_other("tenant_id", tenant, who.tenant if disabled else None))
        async with self._database.transact() as change:
            if not await IdentityStore(change).disable_tenant(tenant, disabled=disabled):
                raise unknown("tenant", "tenant_id")
            await note(change, who, Action.TENANT_DISABLED if disabled else Action.TENANT_ENABLED, tenant, tenant)

    async def list_tenants(self, who: Principal, page: Page) -> list[TenantRow]:
        """Tenants by id."""
        who.require_operator()
        return await IdentityStore(self._database).list_tenants(page)

    async def put_user(self, who: Principal, tenant: str, user: str, name: str | None) -> UserRow:
        """Adds a user or renames it; None changes nothing. Raises CallerError TENANT_UNKNOWN."""
        who.require_admin(tenant)
        require(check_id("tenant_id", tenant), check_id("user_id", user), check_name("name", name))
        async with self._database.transact() as change:
            row = await IdentityStore(change).put_user(tenant, user, name)
            await note(change, who, Action.USER_PUT, tenant, user, name=row.name)
        return row

    async def list_users(self, who: Principal, tenant: str, page: Page) -> list[UserRow]:
        """A tenant's users by id."""
        who.require_admin(tenant)
        require(check_id("tenant_id", tenant))
        return await IdentityStore(self._database).list_users(tenant, page)

    async def create_key(self, who: Principal, grant: KeyGrant) -> NewKey:
        """Makes a key. Raises CallerError USER_UNKNOWN."""
        who.require_grant(grant.tenant, grant.roles, grant.models)
        require(
            check_id("tenant_id", grant.tenant),
            check_id("user_id", grant.user),
            check_name("name", grant.name),
            check_models("models.models", grant.models),
            check_future("expires_at", grant.expires_at, self._time()),
        )
        grant = replace(grant, models=_sort(grant.models))
        async with self._database.transact() as change:
            new = await self._issuer(change).issue(grant)
            await note(change, who, Action.KEY_CREATED, grant.tenant, new.prefix, **_describe(grant))
        return new

    async def list_keys(self, who: Principal, tenant: str, page: Page, *, old_pepper: bool = False) -> list[KeyRow]:
        """Keys of a tenant, or of all, oldest first; or of them those in force that are old."""
        who.require_view(tenant)
        require(check_filter("tenant_id", tenant))
        return await IdentityStore(self._database).list_keys(tenant, page, without_pepper=self._keys.pepper if old_pepper else None)

    def is_old(self, key: KeyRow) -> bool:
        """Whether a key has not been used since the pepper is the one of now."""
        return self._keys.is_old(key)

    async def rotate_key(self, who: Principal, tenant: str, prefix: str, overlap: timedelta) -> NewKey:
        """Makes a key in place of an old one, which goes on working for the overlap. Raises CallerError KEY_UNKNOWN."""
        who.require_admin(tenant)
        require(check_id("tenant_id", tenant), check_id("prefix", prefix), check_overlap("overlap", overlap))
        async with self._database.transact() as change:
            old = await _lock_key(change, tenant, prefix)
            who.require_grant(tenant, read_roles(old.roles), old.models)
            new = await self._issuer(change).rotate(tenant, prefix, overlap)
            if new is None:
                raise unknown("key", "prefix")
            await note(change, who, Action.KEY_ROTATED, tenant, prefix, new_key=new.prefix, overlap_s=overlap.total_seconds())
        return new

    async def revoke_key(self, who: Principal, tenant: str, prefix: str) -> None:
        """Ends a key for good. Raises CallerError KEY_UNKNOWN."""
        who.require_admin(tenant)
        require(check_id("tenant_id", tenant), check_id("prefix", prefix))
        async with self._database.transact() as change:
            key = await _lock_key(change, tenant, prefix)
            who.require_grant(tenant, read_roles(key.roles), models=())
            await IdentityStore(change).revoke_key(tenant, prefix)
            await note(change, who, Action.KEY_REVOKED, tenant, prefix)

    async def restrict_key(self, who: Principal, tenant: str, prefix: str, models: Collection[str] | None) -> None:
        """Changes the models that a key may use; None is all. Raises CallerError KEY_UNKNOWN."""
        who.require_grant(tenant, (), models)
        require(check_id("tenant_id", tenant), check_id("prefix", prefix), check_models("models.models", models))
        async with self._database.transact() as change:
            key = await _lock_key(change, tenant, prefix)
            who.require_grant(tenant, read_roles(key.roles), models)
            await IdentityStore(change).restrict_key(tenant, prefix, _sort(models))
            await note(change, who, Action.KEY_RESTRICTED, tenant, prefix, models=_sort(models))

    def _issuer(self, change: Transaction) -> KeyIssuer:
        return KeyIssuer(IdentityStore(change), self._keys, self._now)

    def _time(self) -> datetime:
        return datetime.fromtimestamp(self._now(), UTC)


async def _lock_key(change: Transaction, tenant: str, prefix: str) -> KeyRow:
    """Locked, so that a key which is rotated while another administrator restricts it passes the restriction on."""
    key = await IdentityStore(change).lock_key(tenant, prefix)
    if key is None:
        raise unknown("key", "prefix")
    return key


def _sort(models: Collection[str] | None) -> list[str] | None:
    return None if models is None else sorted(set(models))


def _describe(grant: KeyGrant) -> dict[str, object]:
    expires_at = grant.expires_at and grant.expires_at.isoformat()
    roles = sorted(role.value for role in grant.roles)
    return {"user": grant.user, "name": grant.name, "roles": roles, "models": grant.models, "expires_at": expires_at}

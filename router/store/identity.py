"""Queries on tenants, users and keys, and what changed of them, which every router asks several times a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import psycopg

from router.errors import unknown
from router.store.database import Queries
from router.store.page import ALL, Page
from router.store.rows import KeyDigests, KeyRow, TenantRow, UserRow

_PUT_TENANT = """
    INSERT INTO tenants AS t (id, name, weight, no_downgrade)
    VALUES (%(id)s, coalesce(%(name)s, %(id)s), coalesce(%(weight)s, 1), coalesce(%(no_downgrade)s, false))
    ON CONFLICT (id) DO UPDATE SET
        name = coalesce(%(name)s, t.name),
        weight = coalesce(%(weight)s, t.weight),
        no_downgrade = coalesce(%(no_downgrade)s, t.no_downgrade)
    RETURNING id, name, weight, no_downgrade, created_at, disabled_at
"""
_PUT_USER = """
    INSERT INTO users AS u (tenant, id, name) VALUES (%(tenant)s, %(id)s, coalesce(%(name)s, %(id)s))
    ON CONFLICT (tenant, id) DO UPDATE SET name = coalesce(%(name)s, u.name)
    RETURNING tenant, id, name, created_at
"""
_KEYS = """
    SELECT prefix, digest, pepper, next_digest, next_pepper, tenant, "user", name, roles, models, created_at, expires_at, revoked_at
    FROM keys
"""
_LIST_KEYS = """
    WHERE (%(tenant)s = '' OR tenant = %(tenant)s) AND (created_at, prefix) > (%(created_at)s, %(prefix)s)
        AND (%(pepper)s::text IS NULL
             OR %(pepper)s NOT IN (coalesce(pepper, ''), coalesce(next_pepper, ''))
             AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now()))
    ORDER BY created_at, prefix LIMIT %(limit)s
"""
_ADD_KEY = """
    INSERT INTO keys (prefix, digest, pepper, next_digest, next_pepper,
                      tenant, "user", name, roles, models, created_at, expires_at, revoked_at)
    VALUES (%(prefix)s, %(digest)s, %(pepper)s, %(next_digest)s, %(next_pepper)s,
            %(tenant)s, %(user)s, %(name)s, %(roles)s, %(models)s, %(created_at)s, %(expires_at)s, %(revoked_at)s)
"""
_RENEW_KEY = """
    UPDATE keys SET digest = %(digest)s, pepper = %(pepper)s, next_digest = %(next_digest)s, next_pepper = %(next_pepper)s,
                    changed_at = clock_timestamp()
    WHERE prefix = %(prefix)s AND (pepper, next_pepper) IS DISTINCT FROM (%(pepper)s, %(next_pepper)s)
"""
_STATE = """
SELECT clock_timestamp() AS now,
       ARRAY(SELECT id FROM tenants WHERE disabled_at IS NOT NULL) AS disabled_tenants,
       EXISTS(SELECT FROM keys WHERE changed_at >= %s) AS has_keys
"""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Changes:
    """What a router must take note of: keys that changed lately, and all disabled tenants. `now` is the database's clock before reading."""

    now: datetime
    keys: list[KeyRow]
    disabled_tenants: list[str]


@dataclass(frozen=True, slots=True)
class _State:
    now: datetime
    disabled_tenants: list[str]
    has_keys: bool


class IdentityStore:
    """Tenants, users and keys in the database. Every method raises StoreAway."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def put_tenant(
        self, tenant: str, name: str | None = None, weight: float | None = None, no_downgrade: bool | None = None
    ) -> TenantRow:
        """Adds a tenant, or changes it. None changes nothing; a new tenant has its id for a name, weight 1, and allows downgrades."""
        values = {"id": tenant, "name": name, "weight": weight, "no_downgrade": no_downgrade}
        return (await self._queries.fetch(TenantRow, _PUT_TENANT, values))[0]

    async def disable_tenant(self, tenant: str, *, disabled: bool = True) -> bool:
        """Shuts a tenant out, or lets it in again. Whether there is such a tenant."""
        statement = "UPDATE tenants SET disabled_at = CASE WHEN %s THEN coalesce(disabled_at, now()) END WHERE id = %s"
        return await self._queries.execute(statement, [disabled, tenant]) > 0

    async def list_tenants(self, page: Page = ALL) -> list[TenantRow]:
        """Tenants by id."""
        statement = "SELECT id, name, weight, no_downgrade, created_at, disabled_at FROM tenants WHERE id > %s ORDER BY id LIMIT %s"
        return await self._queries.fetch(TenantRow, statement, [*(page.after or [""]), page.limit])

    async def put_user(self, tenant: str, user: str, name: str | None = None) -> UserRow:
        """Adds a user, or renames it. None changes nothing; a new user's name is then its id. Raises CallerError TENANT_UNKNOWN."""
        try:
            return (await self._queries.fetch(UserRow, _PUT_USER, {"tenant": tenant, "id": user, "name": name}))[0]
        except psycopg.errors.ForeignKeyViolation:
            raise unknown("tenant", "tenant_id") from None

    async def list_users(self, tenant: str, page: Page = ALL) -> list[UserRow]:
        """A tenant's users by id."""
        statement = "SELECT tenant, id, name, created_at FROM users WHERE tenant = %s AND id > %s ORDER BY id LIMIT %s"
        return await self._queries.fetch(UserRow, statement, [tenant, *(page.after or [""]), page.limit])

    async def add_key(self, key: KeyRow) -> None:
        """Adds a key. Raises CallerError USER_UNKNOWN, and ValueError when the prefix is taken (one in 2^60)."""
        try:
            await self._queries.execute(_ADD_KEY, asdict(key))
        except psycopg.errors.ForeignKeyViolation:
            raise unknown("user", "user_id") from None
        except psycopg.errors.UniqueViolation:
            raise ValueError("the key's prefix is taken") from None

    async def find_key(self, prefix: str) -> KeyRow | None:
        """The key with a prefix, revoked and expired ones too."""
        rows = await self._queries.fetch(KeyRow, _KEYS + "WHERE prefix = %s", [prefix])
        return rows[0] if rows else None

    async def lock_key(self, tenant: str, prefix: str) -> KeyRow | None:
        """A tenant's key, which nobody else changes until the transaction ends."""
        rows = await self._queries.fetch(KeyRow, _KEYS + "WHERE tenant = %s AND prefix = %s FOR UPDATE", [tenant, prefix])
        return rows[0] if rows else None

    async def list_keys(self, tenant: str, page: Page = ALL, *, without_pepper: str | None = None) -> list[KeyRow]:
        """Keys of a tenant, or of all when empty, by the time they were made and prefix; or of them those in force without this pepper."""
        created_at, prefix = page.after or (_LONG_AGO, "")
        values = {"tenant": tenant, "created_at": created_at, "prefix": prefix, "limit": page.limit, "pepper": without_pepper}
        return await self._queries.fetch(KeyRow, _KEYS + _LIST_KEYS, values)

    async def renew_key(self, prefix: str, digests: KeyDigests) -> None:
        """Stores a key's digests in place of those that it has, which are of the same text."""
        await self._queries.execute(_RENEW_KEY, {"prefix": prefix, **asdict(digests)})

    async def revoke_key(self, tenant: str, prefix: str) -> bool:
        """Ends a key for good. Whether the tenant has it."""
        statement = """UPDATE keys SET revoked_at = coalesce(revoked_at, now()), changed_at = clock_timestamp()
                       WHERE tenant = %s AND prefix = %s"""
        return await self._queries.execute(statement, [tenant, prefix]) > 0

    async def expire_key(self, tenant: str, prefix: str, at: datetime) -> bool:
        """Lets a key end at a time, or sooner if it already does: the old key's half of a rotation. Whether the tenant has it."""
        statement = """UPDATE keys SET expires_at = least(expires_at, %s), changed_at = clock_timestamp()
                       WHERE tenant = %s AND prefix = %s"""
        return await self._queries.execute(statement, [at, tenant, prefix]) > 0

    async def restrict_key(self, tenant: str, prefix: str, models: Sequence[str] | None) -> bool:
        """Changes the models that a key may use; None is every model. Whether the tenant has it."""
        statement = "UPDATE keys SET models = %s, changed_at = clock_timestamp() WHERE tenant = %s AND prefix = %s"
        return await self._queries.execute(statement, [None if models is None else list(models), tenant, prefix]) > 0

    async def read_changes(self, since: datetime) -> Changes:
        """Keys changed at or after a time, and the disabled tenants."""
        (state,) = await self._queries.fetch(_State, _STATE, [since])
        keys = await self._queries.fetch(KeyRow, _KEYS + "WHERE changed_at >= %s", [since]) if state.has_keys else []
        return Changes(state.now, keys, state.disabled_tenants)

"""Queries on tenants, users and keys, and what changed of them, which every router asks several times a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

import psycopg

from router.errors import CallerError, Code, Violation
from router.store.database import Queries
from router.store.rows import KeyRow, TenantRow, UserRow

_ADD_KEY = """
    INSERT INTO keys (prefix, digest, tenant, "user", name, roles, models, created_at, expires_at, revoked_at)
    VALUES (%(prefix)s, %(digest)s, %(tenant)s, %(user)s, %(name)s, %(roles)s, %(models)s, %(created_at)s, %(expires_at)s, %(revoked_at)s)
"""
_STATE = "SELECT clock_timestamp() AS now, ARRAY(SELECT id FROM tenants WHERE disabled_at IS NOT NULL) AS disabled_tenants"


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


class IdentityStore:
    """Tenants, users and keys in the database. Every method raises StoreAway."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def put_tenant(self, tenant: str, name: str, weight: float | None = None) -> None:
        """Adds a tenant, or changes it. A weight of None is 1 for a new tenant, and no change for another."""
        statement = """INSERT INTO tenants AS t (id, name, weight) VALUES (%(id)s, %(name)s, coalesce(%(weight)s, 1))
                       ON CONFLICT (id) DO UPDATE SET name = excluded.name, weight = coalesce(%(weight)s, t.weight)"""
        await self._queries.execute(statement, {"id": tenant, "name": name, "weight": weight})

    async def disable_tenant(self, tenant: str, *, disabled: bool = True) -> bool:
        """Shuts a tenant out, or lets it in again. Whether there is such a tenant."""
        statement = "UPDATE tenants SET disabled_at = CASE WHEN %s THEN coalesce(disabled_at, now()) END WHERE id = %s"
        return await self._queries.execute(statement, [disabled, tenant]) > 0

    async def list_tenants(self) -> list[TenantRow]:
        """All tenants by id."""
        return await self._queries.fetch(TenantRow, "SELECT id, name, weight, created_at, disabled_at FROM tenants ORDER BY id")

    async def put_user(self, tenant: str, user: str, name: str) -> None:
        """Adds a user, or renames it. Raises CallerError when there is no such tenant."""
        statement = """INSERT INTO users (tenant, id, name) VALUES (%s, %s, %s)
                       ON CONFLICT (tenant, id) DO UPDATE SET name = excluded.name"""
        try:
            await self._queries.execute(statement, [tenant, user, name])
        except psycopg.errors.ForeignKeyViolation:
            raise owner_unknown("tenant", "no such tenant") from None

    async def list_users(self, tenant: str) -> list[UserRow]:
        """A tenant's users by id."""
        statement = "SELECT tenant, id, name, created_at FROM users WHERE tenant = %s ORDER BY id"
        return await self._queries.fetch(UserRow, statement, [tenant])

    async def add_key(self, key: KeyRow) -> None:
        """Adds a key. Raises CallerError when there is no such user, ValueError when the prefix is taken (one in 2^60)."""
        try:
            await self._queries.execute(_ADD_KEY, asdict(key))
        except psycopg.errors.ForeignKeyViolation:
            raise owner_unknown("user", "no such user of the tenant") from None
        except psycopg.errors.UniqueViolation:
            raise ValueError("the key's prefix is taken") from None

    async def find_key(self, prefix: str) -> KeyRow | None:
        """The key with a prefix, revoked and expired ones too."""
        rows = await self._queries.fetch(KeyRow, _KEYS + "WHERE prefix = %s", [prefix])
        return rows[0] if rows else None

    async def list_keys(self, tenant: str) -> list[KeyRow]:
        """A tenant's keys, oldest first."""
        return await self._queries.fetch(KeyRow, _KEYS + "WHERE tenant = %s ORDER BY created_at, prefix", [tenant])

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
        (state,) = await self._queries.fetch(_State, _STATE)
        keys = await self._queries.fetch(KeyRow, _KEYS + "WHERE changed_at >= %s", [since])
        return Changes(state.now, keys, state.disabled_tenants)


_KEYS = """SELECT prefix, digest, tenant, "user", name, roles, models, created_at, expires_at, revoked_at FROM keys """


def owner_unknown(field: str, description: str) -> CallerError:
    """What a change refers to does not exist."""
    return CallerError(Code.NOT_FOUND, "OWNER_UNKNOWN", description, violations=(Violation(field, description),))

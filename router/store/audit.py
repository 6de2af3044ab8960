"""Queries on the audit log: who changed what, and when. Rows cannot be changed or deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg.types.json import Jsonb

from router.store.database import Queries
from router.store.rows import AuditRow

_READ = """
    SELECT id, at, actor, action, tenant, target, detail FROM audit_log
    WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s) AND (%(before)s::bigint IS NULL OR id < %(before)s)
    ORDER BY id DESC LIMIT %(limit)s
"""


class AuditStore:
    """The audit log. Every method raises StoreAway."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def write(self, actor: str, action: str, tenant: str, target: str, detail: Mapping[str, Any] | None = None) -> None:
        """Adds a row. `detail` is JSON without secrets; an empty tenant is the whole installation."""
        statement = "INSERT INTO audit_log (actor, action, tenant, target, detail) VALUES (%s, %s, %s, %s, %s)"
        await self._queries.execute(statement, [actor, action, tenant, target, Jsonb(dict(detail or {}))])

    async def read(self, tenant: str | None = None, before: int | None = None, limit: int = 100) -> list[AuditRow]:
        """The newest rows first, of a tenant or of all; `before` continues a listing below an id."""
        return await self._queries.fetch(AuditRow, _READ, {"tenant": tenant, "before": before, "limit": limit})

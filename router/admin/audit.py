"""The line that a change leaves in the audit log, in the change's own transaction."""

from __future__ import annotations

from enum import Enum
from typing import Any

from router.auth.principal import Principal
from router.store.audit import AuditStore
from router.store.database import Transaction


class Action(Enum):
    """What can be done; stable, part of the API."""

    TENANT_PUT = "TENANT_PUT"
    TENANT_DISABLED = "TENANT_DISABLED"
    TENANT_ENABLED = "TENANT_ENABLED"
    USER_PUT = "USER_PUT"
    KEY_CREATED = "KEY_CREATED"
    KEY_ROTATED = "KEY_ROTATED"
    KEY_REVOKED = "KEY_REVOKED"
    KEY_RESTRICTED = "KEY_RESTRICTED"
    QUOTA_SET = "QUOTA_SET"
    QUOTA_DELETED = "QUOTA_DELETED"
    PRICE_ADDED = "PRICE_ADDED"
    WORKER_DRAINED = "WORKER_DRAINED"
    WORKER_RESUMED = "WORKER_RESUMED"


async def note(change: Transaction, who: Principal, action: Action, tenant: str, target: str, **detail: Any) -> None:
    """Adds the line. An empty tenant is the whole installation; `detail` is the new state, JSON without secrets. Raises StoreAway."""
    await AuditStore(change).write(describe_actor(who), action.value, tenant, target, detail)


def describe_actor(who: Principal) -> str:
    """Who, as the audit log says it: `acme/ann`, and the prefix of the key where one was used."""
    name = f"{who.tenant}/{who.user}"
    return f"{name} (key {who.key_id})" if who.key_id else name

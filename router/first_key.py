"""The first key of an installation: whoever has the router's configuration and folder may make one, with the router running or not."""

from __future__ import annotations

import time

from router.admin.checks import check_id
from router.auth.assemble import build_key_hash
from router.auth.issue import KeyGrant, KeyIssuer
from router.auth.keys import KeyHash
from router.auth.principal import Role
from router.config import Config
from router.errors import StartFailed
from router.store.audit import AuditStore
from router.store.database import Transaction
from router.store.identity import IdentityStore
from router.store.peppers import claim_peppers
from router.store.store import Store

TENANT = "operators"


async def make_operator_key(config: Config, name: str) -> str:
    """The text of a new key of the user `name` among the operators. Raises ConfigInvalid, StartFailed."""
    for fault in check_id("name", name):
        raise StartFailed(f"--new-operator-key: the name {fault.description}")
    hashing = build_key_hash(config.store.folder)
    async with Store(config.store).open() as database:
        await claim_peppers(database, hashing.names)
        async with database.transact() as transaction:
            return await _add_key(transaction, hashing, name)


async def _add_key(transaction: Transaction, hashing: KeyHash, name: str) -> str:
    identities = IdentityStore(transaction)
    await identities.put_tenant(TENANT, "Operators")
    await identities.put_user(TENANT, name, name)
    grant = KeyGrant(TENANT, name, "first key", roles=frozenset({Role.CALLER, Role.OPERATOR}))
    key = await KeyIssuer(identities, hashing, time.time).issue(grant)
    await AuditStore(transaction).write("console", "KEY_CREATED", TENANT, key.prefix, {"user": name, "roles": ["caller", "operator"]})
    return key.text

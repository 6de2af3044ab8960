"""The identity part of a router on a real database, and keys to show it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from router.auth.authenticate import Authenticator
from router.auth.directory import Directory
from router.auth.issue import KeyGrant, KeyIssuer
from router.auth.keys import KeyHash
from router.auth.mtls import ServiceCertificates
from router.auth.principal import Principal
from router.auth.tokens import TokenVerifier
from router.errors import CallerError
from router.store.database import Database
from router.store.identity import IdentityStore
from tests.unit.router.auth.bench import KEYS, build_refusals

GRANT = KeyGrant("acme", "ann", "laptop")


@asynccontextmanager
async def watched(database: Database, hashing: KeyHash = KEYS) -> AsyncIterator[Authenticator]:
    """The identity part of one router."""
    async with Directory(IdentityStore(database), clock=time.monotonic).running() as directory:
        yield Authenticator(hashing, directory, TokenVerifier([], time.time), ServiceCertificates({}), build_refusals(), now=time.time)


async def ask(authenticator: Authenticator, text: str) -> Principal:
    return await authenticator.identify([("authorization", f"Bearer {text}")], {})


async def build_issuer(database: Database) -> KeyIssuer:
    """Makes keys of acme's ann."""
    store = IdentityStore(database)
    await store.put_tenant("acme", "Acme")
    await store.put_user("acme", "ann", "Ann")
    return KeyIssuer(store, KEYS, time.time)


async def refused_within(authenticator: Authenticator, text: str, limit_s: float) -> bool:
    """Whether a key that works now is refused before the time is over."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            await ask(authenticator, text)
        except CallerError as error:
            return error.reason == "UNAUTHENTICATED"
        await asyncio.sleep(0.02)
    return False

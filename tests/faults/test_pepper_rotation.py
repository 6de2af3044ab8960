"""The pepper of keys is changed: no key stops working, no router disturbs another, and nothing waits for it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tidegate.v1.chat_service_pb2 import CompleteRequest
from tidegate.v1.turn_pb2 import TurnSpec

from router.auth.issue import KeyIssuer
from router.auth.keys import PEPPER_VARIABLE, PREVIOUS_VARIABLE, KeyHash, NewKey
from router.store.database import Database
from router.store.identity import IdentityStore
from tests.bench.identity import GRANT, ask, build_issuer, refused_within, watched
from tests.bench.pair import Site, run_site
from tests.bench.postgres import fresh_database
from tests.bench.process import RouterProcess
from tests.bench.router import stub_at
from tests.bench.tenants import bearer
from tests.bench.whole import ask as ask_user
from tests.bench.worker import Worker
from tests.unit.router.auth.bench import NEW, OLD

pytestmark = pytest.mark.slow  # real servers, and bounds in real time

BOTH = KeyHash(NEW, OLD)
COMPLETE = CompleteRequest(spec=TurnSpec(messages=[ask_user()], max_output_tokens=2))


async def until_none_is_old(store: IdentityStore) -> None:
    """Returns once no key depends on the old pepper; fails when that takes long."""
    async with asyncio.timeout(10):
        while await store.list_keys("", without_pepper=BOTH.pepper):
            pass


async def test_routers_with_and_without_the_new_pepper_serve_the_same_keys() -> None:
    """Whichever of them made a key or stored it last. One of the last release, which knows of the first digest alone, does so too."""
    async with fresh_database() as (database, dsn), Database(dsn).running() as other:
        store, issuer = IdentityStore(database), await build_issuer(database)
        keys = [await issuer.issue(GRANT), await KeyIssuer(store, BOTH, time.time).issue(GRANT)]
        async with watched(database) as before, watched(other, BOTH) as after:
            for router in (before, after, before):
                assert [(await ask(router, key.text)).key_id for key in keys] == [key.prefix for key in keys]
            await until_none_is_old(store)
            for router in (before, after):
                assert [(await ask(router, key.text)).key_id for key in keys] == [key.prefix for key in keys]
        for key, row in zip(keys, await store.list_keys("acme"), strict=True):
            assert row.digest == hmac.digest(OLD, key.text.encode(), hashlib.sha256)


async def test_a_renewal_that_waits_delays_no_revocation() -> None:
    """Somebody's open transaction holds the key that is to be renewed; other keys go on being followed, and the key works."""
    async with fresh_database() as (database, _):
        issuer = await build_issuer(database)
        held, ended = await issuer.issue(GRANT), await issuer.issue(GRANT)
        async with database.transact() as change, watched(database, BOTH) as router:
            assert await IdentityStore(change).lock_key("acme", held.prefix)
            await ask(router, held.text)
            await ask(router, ended.text)
            assert await IdentityStore(database).revoke_key("acme", ended.prefix)
            assert await refused_within(router, ended.text, 1.0)
            assert (await ask(router, held.text)).key_id == held.prefix


class Pair:
    """Routers in processes of their own, each started anew with other peppers."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._running: dict[str, tuple[AsyncExitStack, RouterProcess]] = {}

    async def start(self, name: str, **secrets: str) -> None:
        """Starts a router, in place of the one of that name."""
        if name in self._running:
            await self._running.pop(name)[0].aclose()
        stack = AsyncExitStack()
        self._running[name] = stack, await stack.enter_async_context(self._site.process(name, **secrets))

    async def serve(self, keys: Iterable[NewKey]) -> None:
        """Every router answers every key."""
        for _, router in self._running.values():
            async with stub_at(router.target) as stub:
                for key in keys:
                    assert (await stub.Complete(COMPLETE, metadata=bearer(key.text))).text == "ab"

    async def close(self) -> None:
        for stack, _ in self._running.values():
            await stack.aclose()


async def test_processes_are_started_anew_one_by_one(chatml: Path) -> None:
    """As the README says: with both peppers one router after the other, and once no key needs the old one, without it."""
    old, new = OLD.decode(), NEW.decode()
    async with run_site(chatml, Worker(chatml, ["ab"])) as site, Database(site.dsn).running() as database, AsyncExitStack() as stack:
        routers = Pair(site)
        stack.push_async_callback(routers.close)
        issuer, store = await build_issuer(database), IdentityStore(database)
        keys = [await issuer.issue(GRANT)]
        for name in ("one", "two"):
            await routers.start(name, **{PEPPER_VARIABLE: old})
        await routers.serve(keys)
        for name in ("one", "two"):
            await routers.start(name, **{PEPPER_VARIABLE: new, PREVIOUS_VARIABLE: old})
            keys += [await issuer.issue(GRANT), await KeyIssuer(store, BOTH, time.time).issue(GRANT)]
            await routers.serve(keys)
        await until_none_is_old(store)
        for name in ("one", "two"):
            await routers.start(name, **{PEPPER_VARIABLE: new})
            await routers.serve(keys)

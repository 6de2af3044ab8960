"""A child that is killed with -9 is started again, and a router that can let nobody in says that it is not ready."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from tidegate.v1.chat_service_pb2 import CompleteRequest
from tidegate.v1.turn_pb2 import TurnSpec

from router.app import build
from router.config import read_config
from router.first_key import make_operator_key
from router.store.database import Database, StoreAway
from router.store.embedded import embedded_postgres
from tests.bench.calls import failure_of
from tests.bench.http import connect
from tests.bench.postgres import migrated_database, outage
from tests.bench.router import Router, run_router, stub_at, values_of
from tests.bench.tenants import bearer
from tests.bench.waiting import until
from tests.bench.whole import ask
from tests.bench.worker import Worker
from tests.unit.router.quota.redis_server import run_redis

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
COMPLETE = CompleteRequest(spec=TurnSpec(messages=[ask()], max_output_tokens=2))
LONG_S = 60.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's system user can enter, which pytest's are not."""
    parent = Path(tempfile.mkdtemp(prefix="tidegate-pg-"))
    yield parent
    shutil.rmtree(parent)


def find_keeper(data: Path) -> int:
    """The process that keeps the server of a folder; 0 while there is none."""
    wanted = f"router.store.embedded\0{data}\0".encode()
    return next((int(it.parent.name) for it in Path("/proc").glob("[0-9]*/cmdline") if read_or_nothing(it).endswith(wanted)), 0)


def read_or_nothing(path: Path) -> bytes:
    """A process may end while its file is read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def find_server(data: Path) -> int:
    """The server's process id."""
    return int((data / "postmaster.pid").read_text().split()[0])


async def answers(database: Database) -> bool:
    try:
        return await database.execute("SELECT 1") == 1
    except StoreAway:
        return False


async def until_it_answers(database: Database) -> None:
    for _ in range(100):
        if await answers(database):
            return
    pytest.fail("the database did not come back")


async def test_a_killed_server_comes_back_with_what_it_held(folder: Path) -> None:
    """At the same address, again and again, while who uses it only sees it away."""
    data = folder / "data"
    async with embedded_postgres(data) as dsn, Database(dsn).running() as database:
        await database.execute("CREATE TABLE kept (id int)")
        for _ in range(2):
            os.kill(killed := find_server(data), signal.SIGKILL)
            await until(lambda: not Path(f"/proc/{killed}").exists(), LONG_S)
            await until_it_answers(database)
            assert find_server(data) != killed
            assert await database.execute("SELECT * FROM kept") == 0
    await until(lambda: not (data / "postmaster.pid").exists())


async def test_a_killed_keeper_is_replaced_and_its_server_goes_on(folder: Path) -> None:
    """And the server ends with the router, as if nothing had been."""
    data = folder / "data"
    async with embedded_postgres(data) as dsn, Database(dsn).running() as database:
        server, killed = find_server(data), find_keeper(data)
        os.kill(killed, signal.SIGKILL)
        await until(lambda: find_keeper(data) not in (0, killed), LONG_S)
        await until(lambda: str(find_keeper(data)) in (data / ".handle_pids.json").read_text(), LONG_S)
        assert await answers(database)
        assert find_server(data) == server
    await until(lambda: not (data / "postmaster.pid").exists())


async def test_a_router_whose_server_is_killed_serves_again(chatml: Path, folder: Path) -> None:
    """A key that the router has never seen is looked up in the database that came back."""
    async with Worker(chatml, ["ab"]).running() as worker:
        config = read_config(values_of(chatml, worker.address, store={"folder": str(folder)}, auth={"anonymous": False}))
        keys = [await make_operator_key(config, name) for name in ("alice", "bob")]
        app = build(config)
        async with app.running() as endpoints, stub_at(endpoints.grpc) as stub:
            await until(lambda: all(it.up for it in app.workers))
            assert (await stub.Complete(COMPLETE, metadata=bearer(keys[0]))).text == "ab"
            os.kill(killed := find_server(folder / "postgres"), signal.SIGKILL)
            await until(lambda: not Path(f"/proc/{killed}").exists(), LONG_S)
            await until_it_answers(app.store.database)
            await app.identity.directory.poll()
            assert (await stub.Complete(COMPLETE, metadata=bearer(keys[1]))).text == "ab"


@asynccontextmanager
async def watched(router: Router) -> AsyncIterator[Any]:
    """What a health check is told, change by change."""
    async with grpc.aio.insecure_channel(router.target) as channel:
        watch = HealthStub(channel).Watch(HealthCheckRequest(), timeout=LONG_S)  # type: ignore[attr-defined]  # the stubs lack it
        yield watch
        watch.cancel()


async def is_ready(router: Router) -> tuple[int, str]:
    async with connect(router.http) as caller:
        answer = await caller.ask("/readyz")
    return answer.status, answer.json.get("why", "")


async def test_a_router_that_can_check_nobody_is_not_ready(chatml: Path) -> None:
    """With the database away beyond the grace, on both doors, until it is back; it is alive throughout."""
    options: Any = {"auth": {"anonymous": False, "grace_s": 1.0}}
    async with migrated_database() as dsn, Worker(chatml).running() as worker:
        async with run_router(chatml, worker.address, store={"dsn": dsn}, **options) as router, watched(router) as watch:
            assert (await watch.read()).status == SERVING
            async with outage(dsn):
                assert (await is_ready(router)) == (200, "")
                assert (await watch.read()).status == NOT_SERVING
                assert await is_ready(router) == (503, "credentials cannot be checked")
                async with connect(router.http) as caller:
                    assert (await caller.ask("/healthz")).status == 200
            assert (await watch.read()).status == SERVING
            assert await is_ready(router) == (200, "")


async def test_a_router_that_lets_anybody_in_needs_no_database_to_be_ready(chatml: Path) -> None:
    """Whoever calls without credentials is served while the database is away."""
    async with migrated_database() as dsn, Worker(chatml, ["ab"]).running() as worker:
        options: Any = {"auth": {"anonymous": True, "grace_s": 0.1}}
        async with run_router(chatml, worker.address, store={"dsn": dsn}, **options) as router, router.stub() as stub, outage(dsn):
            await until(lambda: not router.app.identity.directory.is_known)
            assert (await stub.Complete(COMPLETE)).text == "ab"
            assert await is_ready(router) == (200, "")


@pytest.mark.parametrize(("policy", "ready"), [("refuse", False), ("share", True)])
async def test_a_router_that_grants_nothing_is_not_ready(chatml: Path, policy: str, ready: bool) -> None:
    """With Redis away and `redis_away = "refuse"`; it finds out by itself that Redis is back, without a turn."""
    with run_redis() as redis:
        async with Worker(chatml, ["ab"]).running() as worker:
            quota = {"redis": redis.url, "redis_away": policy, "routers": 2}
            async with run_router(chatml, worker.address, quota=quota) as router, router.stub() as stub, watched(router) as watch:
                assert (await watch.read()).status == SERVING
                redis.kill()
                if ready:
                    assert (await stub.Complete(COMPLETE)).text == "ab"
                    assert await is_ready(router) == (200, "")
                    return
                assert (await failure_of(stub.Complete(COMPLETE))).reason == "QUOTA_UNAVAILABLE"
                assert (await watch.read()).status == NOT_SERVING
                assert await is_ready(router) == (503, "limits cannot be checked")
                redis.start()
                assert (await watch.read()).status == SERVING

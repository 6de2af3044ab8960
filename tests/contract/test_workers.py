"""Workers in operators' hands: a drained one ends its turns, gets no new ones, and stays out until it is resumed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
from tidegate.v1 import admin_pb2 as pb
from tidegate.v1 import admin_service_pb2 as api
from tidegate.v1.admin_service_pb2_grpc import AdminServiceStub

from tests.bench.postgres import migrated_database
from tests.bench.router import Router, run_router
from tests.bench.tenants import OPERATOR, bearer, make_key
from tests.bench.waiting import until
from tests.bench.whole import ask
from tests.bench.worker import Worker


class Operator:
    """Calls AdminService."""

    def __init__(self, stub: Any, key: str) -> None:
        self._stub = stub
        self._metadata = bearer(key)

    async def drain(self, address: str) -> None:
        await self._stub.DrainWorker(api.DrainWorkerRequest(address=address), metadata=self._metadata)

    async def resume(self, address: str) -> None:
        await self._stub.ResumeWorker(api.ResumeWorkerRequest(address=address), metadata=self._metadata)

    async def phases(self) -> dict[str, pb.WorkerPhase]:
        """Of the workers, as they are now."""
        watch = self._stub.WatchWorkers(api.WatchWorkersRequest(), metadata=self._metadata)
        shown = await anext(aiter(watch))
        watch.cancel()
        return {worker.address: worker.phase for worker in shown.workers}


@asynccontextmanager
async def operator_of(router: Router) -> AsyncIterator[Operator]:
    key = await make_key(router, "house", "ops", roles=OPERATOR)
    async with grpc.aio.insecure_channel(router.target) as channel:
        yield Operator(AdminServiceStub(channel), key)  # type: ignore[no-untyped-call]


async def place(router: Router) -> str:
    """The worker that takes a turn."""
    async with router.client() as client, client.session() as session:
        async for event in await session.start(ask(), max_output_tokens=1):
            if event.HasField("started"):
                return event.started.worker
    raise AssertionError("the turn was not started")


async def test_a_drained_worker_ends_its_turns_and_gets_no_new_ones(chatml: Path, tmp_path: Path) -> None:
    """Until it is resumed, on every router of the database, and whether or not routers start anew meanwhile."""
    one, two = Worker(chatml, ["a"] * 2000, step_s=0.001), Worker(chatml)
    routing = {"policy": "round_robin"}
    async with one.running(), two.running(), migrated_database() as dsn:
        store = {"dsn": dsn, "folder": str(tmp_path)}
        async with run_router(chatml, one.address, two.address, store=store, routing=routing) as router, operator_of(router) as operator:
            async with router.client() as client, client.session() as session:
                long = [await session.start(ask(), max_output_tokens=400) for _ in range(2)]
                await until(one.engine.has_work)
                await operator.drain(one.address)
                await until(lambda: router.app.terms.drained == {one.address})
                assert {await place(router) for _ in range(4)} == {two.address}
                assert "a" * 400 in [await turn.text() for turn in long]
            phases = {one.address: pb.WORKER_PHASE_DRAINING, two.address: pb.WORKER_PHASE_SERVING}
            assert await operator.phases() == phases
        async with run_router(chatml, one.address, two.address, store=store, routing=routing) as again, operator_of(again) as operator:
            assert {await place(again) for _ in range(4)} == {two.address}
            await operator.resume(one.address)
            await until(lambda: not again.app.terms.drained)
            assert {await place(again) for _ in range(4)} == {one.address, two.address}


async def test_a_worker_is_told_which_turns_may_share_a_prefix(chatml: Path) -> None:
    """Those of one tenant, on any router and by any of its keys; it does not learn who that is."""
    async with Worker(chatml).running() as worker, migrated_database() as dsn, AsyncExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        for user in ("ann", "bob"):
            async with run_router(chatml, worker.address, store={"dsn": dsn, "folder": folder}) as router:
                for tenant in ("acme", "globex"):
                    async with router.client(key=await make_key(router, tenant, user)) as client:
                        assert await client.chat(ask()).text() == "ok"
    acme, globex, acme_again, globex_again = (request.cache_salt for request in worker.engine.requests)
    assert (acme, globex) == (acme_again, globex_again)
    assert acme != globex
    assert not any(name in salt for name in ("acme", "globex") for salt in (acme, globex))

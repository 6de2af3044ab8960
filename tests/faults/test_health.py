"""Readiness: a router says that it serves a model only while a worker has described itself, and a watcher never holds up its stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from tidegate.v1.chat_service_pb2 import CompleteRequest
from tidegate.v1.turn_pb2 import TurnSpec

from tests.bench.calls import failure_of
from tests.bench.raw_worker import Requests, Responses, greeting, run_raw_worker
from tests.bench.router import Router, run_router
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Worker

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


@asynccontextmanager
async def open_health(router: Router) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(router.target) as channel:
        yield HealthStub(channel)


async def status_of(health: Any, service: str = "") -> int:
    return int((await health.Check(HealthCheckRequest(service=service))).status)


async def wait_for_status(health: Any, status: int, service: str = "") -> None:
    async def has_come() -> bool:
        return await status_of(health, service) == status

    await until(has_come)


async def test_a_router_is_not_ready_before_a_worker_is(chatml: Path) -> None:
    """While the worker loads the router is not serving and turns fail as retryable; when it has described itself both change."""
    loaded = asyncio.Event()

    async def play(requests: Requests) -> Responses:
        await loaded.wait()
        yield greeting(chatml)
        await asyncio.Event().wait()

    request = CompleteRequest(spec=TurnSpec(messages=[ask()]))
    async with run_raw_worker(play) as address, run_router(chatml, address, wait_up=False) as router:
        async with open_health(router) as health, router.stub() as stub:
            assert [await status_of(health, name) for name in ("", "tidegate.v1.ChatService", "model/test")] == [NOT_SERVING] * 3
            error = await failure_of(stub.Complete(request))
            assert (error.code, error.reason, error.retry_after) == (grpc.StatusCode.UNAVAILABLE, "NO_WORKER", 1.0)
            loaded.set()
            await wait_for_status(health, SERVING)
            assert [await status_of(health, name) for name in ("tidegate.v1.ChatService", "model/test")] == [SERVING] * 2


async def test_each_model_has_its_own_status(chatml: Path) -> None:
    """With one of two models served, that one is serving and the other is not."""
    async with Worker(chatml).running() as worker:
        models: Any = [
            {"name": name, "path": str(chatml), "workers": [address]} for name, address in (("up", worker.address), ("down", "127.0.0.1:1"))
        ]
        async with run_router(chatml, wait_up=False, models=models) as router, open_health(router) as health:
            await wait_for_status(health, SERVING, "model/up")
            assert await status_of(health, "model/down") == NOT_SERVING
            assert await status_of(health) == SERVING


async def test_the_status_follows_the_worker(chatml: Path) -> None:
    """A watcher sees the model go when its worker dies and return when the worker does."""
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router, open_health(router) as health:
        await wait_for_status(health, SERVING)
        watch = health.Watch(HealthCheckRequest(service="model/test"))
        seen = [(await watch.read()).status]
        await worker.stop()
        seen.append((await watch.read()).status)
        await worker.start()
        seen.append((await watch.read()).status)
        watch.cancel()
    assert seen == [SERVING, NOT_SERVING, SERVING]


async def test_watchers_do_not_hold_up_the_stop(chatml: Path) -> None:
    """With watchers and no turn running a router stops well before its grace ends, and each watcher sees NOT_SERVING and the end."""
    async with Worker(chatml).running() as worker:
        async with AsyncExitStack() as routers:
            router = await routers.enter_async_context(run_router(chatml, worker.address, timeouts={"drain_s": 600.0}))
            channel = grpc.aio.insecure_channel(router.target)
            health: Any = HealthStub(channel)
            await wait_for_status(health, SERVING)
            watches = [health.Watch(HealthCheckRequest(service=name)) for name in ("", "model/test", "no such service")]
            for watch in watches:
                await watch.read()
            readers = [asyncio.create_task(rest_of(watch)) for watch in watches]
            async with asyncio.timeout(60.0):
                await routers.aclose()
        told = await asyncio.gather(*readers)
        await channel.close()
    assert told == [[NOT_SERVING], [NOT_SERVING], []]


async def rest_of(watch: Any) -> list[int]:
    """What a watcher is still told until its call ends with OK."""
    told = []
    while (response := await watch.read()) is not grpc.aio.EOF:
        told.append(response.status)
    assert await watch.code() == grpc.StatusCode.OK
    return told


async def test_an_unknown_service_has_no_status(chatml: Path) -> None:
    """Asking for a service that does not exist is NOT_FOUND, however often and by whatever name."""
    async with run_router(chatml, wait_up=False) as router, open_health(router) as health:
        for name in ("nope", "model/nope", "x" * 5000):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await status_of(health, name)
            assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def test_watchers_that_leave_do_not_take_others_along(chatml: Path) -> None:
    """When one watcher of a service leaves, the others still hear of changes."""
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router, open_health(router) as health:
        await wait_for_status(health, SERVING)
        leaves, stays = (health.Watch(HealthCheckRequest()) for _ in range(2))
        assert {(await leaves.read()).status, (await stays.read()).status} == {SERVING}
        leaves.cancel()
        await worker.stop()
        assert (await stays.read()).status == NOT_SERVING
        stays.cancel()
        await worker.start()
        await until(lambda: all(lane.up for lane in router.app.workers))

"""The health service: what it answers, and that every watcher hears of every change."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from router.transport.health import SERVICE, Health
from tests.unit.router.transport.fake_context import FakeContext

SERVING = HealthCheckResponse.SERVING
NOT_SERVING = HealthCheckResponse.NOT_SERVING
UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


async def check(health: Health, service: str) -> Any:
    return (await health.Check(HealthCheckRequest(service=service), FakeContext())).status  # type: ignore[arg-type]


class Watcher:
    """A Watch call."""

    def __init__(self, health: Health, service: str = "") -> None:
        self._context = FakeContext()
        self.call = asyncio.create_task(health.Watch(HealthCheckRequest(service=service), self._context))  # type: ignore[arg-type]

    async def next(self) -> Any:
        """The status that it hears next."""
        return (await self._context.written.get()).status

    async def hears_nothing(self) -> bool:
        """Whether no status waits once the loop has turned."""
        for _ in range(5):
            await asyncio.sleep(0)
        return self._context.written.empty()


async def test_a_router_without_workers_does_not_serve() -> None:
    """Neither as a whole nor as its service."""
    assert [await check(Health(), service) for service in ("", SERVICE)] == [NOT_SERVING, NOT_SERVING]


async def test_one_served_model_is_enough() -> None:
    """The router serves when any model is served; each model has a name of its own."""
    health = Health()
    health.publish({"small": True, "large": False})
    names = ("", SERVICE, "model/small", "model/large")
    assert [await check(health, name) for name in names] == [SERVING, SERVING, SERVING, NOT_SERVING]


async def test_checking_an_unknown_service_is_not_found() -> None:
    """As the protocol has it."""
    context = FakeContext()
    with pytest.raises(grpc.aio.AbortError):
        await Health().Check(HealthCheckRequest(service="model/none"), context)  # type: ignore[arg-type]
    assert context.code is grpc.StatusCode.NOT_FOUND


async def test_a_watcher_hears_the_status_and_its_changes() -> None:
    """At once, and then only what differs from what it heard last."""
    health = Health()
    watcher = Watcher(health)
    assert await watcher.next() == NOT_SERVING
    health.publish({"small": True})
    assert await watcher.next() == SERVING
    health.publish({"small": True, "large": True})
    assert await watcher.hears_nothing()
    health.close()
    await watcher.call


async def test_a_watcher_may_come_before_its_service() -> None:
    """An unknown service is told as such and may appear later."""
    health = Health()
    watcher = Watcher(health, "model/small")
    assert await watcher.next() == UNKNOWN
    health.publish({"small": True})
    assert await watcher.next() == SERVING
    health.close()
    await watcher.call


async def test_only_those_are_woken_whose_service_changed() -> None:
    """Counted by the futures that they wait for: with the same news nobody wakes, with another model's only who watches that."""
    health = Health()
    health.publish({"small": True, "large": False})
    names = ["", SERVICE, "model/small", "model/large", "model/none"]
    watches = [health.Watch(HealthCheckRequest(service=name), FakeContext()).__await__() for name in names]  # type: ignore[arg-type]
    waits = [next(watch) for watch in watches]
    health.publish({"small": True, "large": False})
    assert [wait.done() for wait in waits] == [False] * 5
    health.publish({"small": True, "large": True})
    assert [wait.done() for wait in waits] == [False, False, False, True, False]
    for watch in watches:
        watch.close()


async def test_a_watcher_that_leaves_takes_nobody_with_it() -> None:
    """The others of the same service go on hearing changes: this is why the library's servicer is not used."""
    health = Health()
    first, second = Watcher(health), Watcher(health)
    assert [await first.next(), await second.next()] == [NOT_SERVING, NOT_SERVING]
    first.call.cancel()
    await asyncio.wait({first.call})
    health.publish({"small": True})
    assert await second.next() == SERVING
    health.close()
    await second.call


async def test_closing_tells_all_and_ends_the_watchers() -> None:
    """A watcher that stayed would hold up the server's stop."""
    health = Health()
    health.publish({"small": True})
    watchers = [Watcher(health, service) for service in ("", "model/small")]
    assert [await watcher.next() for watcher in watchers] == [SERVING, SERVING]
    health.close()
    assert [await watcher.next() for watcher in watchers] == [NOT_SERVING, NOT_SERVING]
    await asyncio.gather(*(watcher.call for watcher in watchers))


async def test_after_closing_nothing_serves_again() -> None:
    """A lane that comes up while the router drains changes nothing, and who watches then is told and let go."""
    health = Health()
    health.close()
    health.publish({"small": True})
    assert await check(health, "") == NOT_SERVING
    late = Watcher(health)
    assert await late.next() == NOT_SERVING
    await late.call

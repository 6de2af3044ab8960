"""grpc.health.v1: the router serves when a model has a worker and somebody can be let in.

Service names: empty and `tidegate.v1.ChatService` for that, `model/<name>` for whether one model has a worker, whoever may call. That the
process lives is another question, which the HTTP door's `/healthz` answers: killing a router helps no database. The library's own servicer
is not used: its watchers of one service share a condition that the first to leave deletes, and the others then hear nothing more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer

SERVICE = "tidegate.v1.ChatService"

_LOOK_S = 0.25

log = logging.getLogger("tidegate.health")


class Health(HealthServicer):
    """Answers Check and Watch from the statuses last published."""

    def __init__(self) -> None:
        self._serving: Mapping[str, bool] = {"": False, SERVICE: False}
        self._models: Mapping[str, bool] = {}
        self._obstacle = ""
        self._watchers: set[tuple[str, asyncio.Event]] = set()
        self._closed = False

    @property
    def obstacle(self) -> str:
        """Why nobody would be served, for people; empty when somebody would."""
        if self._closed:
            return "the router is shutting down"
        return self._obstacle or ("" if self.serves() else "no model has a worker")

    def serves(self, service: str = "") -> bool:
        """Whether a service is known and serves; empty means any model."""
        return self._serving.get(service, False)

    def publish(self, models: Mapping[str, bool]) -> None:
        """Sets, for each model, whether it is served. Ignored after `close`."""
        self._models = models
        if self._closed:
            return
        serves = not self._obstacle and any(models.values())
        self._set({"": serves, SERVICE: serves} | {f"model/{name}": served for name, served in models.items()})

    async def watch(self, find_obstacle: Callable[[], str]) -> None:
        """Asks again and again why nobody could be let in, whatever workers there are; empty: somebody can."""
        while True:
            if (obstacle := find_obstacle()) != self._obstacle:
                log.warning("this router lets %s", f"nobody in: {obstacle}" if obstacle else "callers in again")
                self._obstacle = obstacle
                self.publish(self._models)
            await asyncio.sleep(_LOOK_S)

    def close(self) -> None:
        """Sets all to NOT_SERVING for good and ends the watchers, which would otherwise hold up the server's stop."""
        self._closed = True
        self._set(dict.fromkeys(self._serving, False))

    async def Check(self, request: HealthCheckRequest, context: grpc.aio.ServicerContext[Any, Any]) -> HealthCheckResponse:
        if request.service not in self._serving:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return HealthCheckResponse(status=self._status(request.service))

    async def Watch(self, request: HealthCheckRequest, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        watcher = (request.service, asyncio.Event())
        self._watchers.add(watcher)
        try:
            await self._tell(*watcher, context)
        finally:
            self._watchers.discard(watcher)

    async def _tell(self, service: str, changed: asyncio.Event, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        told = None
        while True:
            changed.clear()
            status = self._status(service)
            if status != told:
                await context.write(HealthCheckResponse(status=status))
                told = status
            if self._closed:
                return
            await changed.wait()

    def _status(self, service: str) -> Any:
        if service not in self._serving:
            return HealthCheckResponse.SERVICE_UNKNOWN
        return HealthCheckResponse.SERVING if self._serving[service] else HealthCheckResponse.NOT_SERVING

    def _set(self, serving: Mapping[str, bool]) -> None:
        """Wakes only those who watch what has changed; all of them when it is for good."""
        before, self._serving = self._serving, serving
        for service, changed in self._watchers:
            if self._closed or before.get(service) != serving.get(service):
                changed.set()

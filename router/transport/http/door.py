"""The HTTP door put together: its endpoints, its listener, and their end."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from router.auth.authenticate import Authenticator
from router.config import Config
from router.models import Models
from router.pipeline import Pipeline
from router.telemetry import Metrics
from router.transport.health import Health
from router.transport.http.answers import Answers
from router.transport.http.catalogue import Catalogue
from router.transport.http.gate import Gate
from router.transport.http.probes import Probes
from router.transport.http.routes import build_routes
from router.transport.http.server import HttpServer
from router.transport.http.socket import ConverseSocket
from router.transport.http.turns import TurnRunner


class HttpDoor:
    """Serves HTTP beside the gRPC server, on the same event loop and pipeline."""

    def __init__(
        self,
        *,
        config: Config,
        pipeline: Pipeline,
        models: Models,
        authenticator: Authenticator,
        health: Health,
        registry: CollectorRegistry,
        metrics: Metrics,
    ) -> None:
        gate = Gate(authenticator)
        self._turns = TurnRunner(pipeline)
        self._socket = ConverseSocket(pipeline, gate, config, metrics)
        routes = build_routes(
            gate=gate,
            answers=Answers(self._turns, config),
            catalogue=Catalogue(models),
            socket=self._socket,
            probes=Probes(health, registry),
            allowed_origins=config.http.allowed_origins,
        )
        self._server = HttpServer(routes, config)

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return self._server.open

    async def start(self) -> str:
        """Listens; gives the address, host:port. Raises ConfigInvalid."""
        return await self._server.start()

    async def drain(self, grace_s: float) -> None:
        """Refuses new turns, lets the running ones finish for `grace_s` seconds, then ends them as failed."""
        await asyncio.gather(self._turns.drain(grace_s), self._socket.drain(grace_s))

    async def stop(self, grace_s: float) -> None:
        """Takes no more connections, lets answers under way finish for `grace_s` seconds, then cuts them."""
        await self._server.stop(grace_s)

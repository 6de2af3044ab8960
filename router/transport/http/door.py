"""The HTTP door put together: its endpoints, its listener, and their end."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from router.auth.authenticate import Authenticator
from router.config import Config
from router.model_config import is_loopback
from router.models import Models
from router.pipeline import Pipeline
from router.transport.health import Health
from router.transport.http.answers import Answers
from router.transport.http.catalogue import Catalogue
from router.transport.http.gate import Gate
from router.transport.http.probes import Probes
from router.transport.http.routes import build_routes
from router.transport.http.server import HttpServer
from router.transport.http.socket import ConverseSocket
from router.transport.http.turns import TurnRunner
from router.transport.streams import Streams


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
        streams: Streams,
    ) -> None:
        gate = Gate(authenticator)
        self._turns = TurnRunner(pipeline)
        routes = build_routes(
            gate=gate,
            answers=Answers(self._turns, config),
            catalogue=Catalogue(models),
            socket=ConverseSocket(streams, gate, config.http.allowed_origins),
            probes=Probes(health, registry, shows_metrics=config.http.metrics or is_loopback(config.http.listen)),
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
        """Refuses new turns, lets the running ones finish for `grace_s` seconds, then ends them as failed. Streams drain by themselves."""
        await self._turns.drain(grace_s)

    async def stop(self, grace_s: float) -> None:
        """Takes no more connections, lets answers under way finish for `grace_s` seconds, then cuts them."""
        await self._server.stop(grace_s)

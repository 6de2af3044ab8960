"""GET /healthz, /readyz and /metrics: for orchestrators and Prometheus; no credentials are asked for."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from router.errors import protocol_violated
from router.transport.health import Health
from router.transport.http.exchange import Exchange


class Probes:
    """The endpoints of probes."""

    def __init__(self, health: Health, registry: CollectorRegistry, *, shows_metrics: bool) -> None:
        self._health = health
        self._registry = registry
        self._shows_metrics = shows_metrics

    async def tell_alive(self, exchange: Exchange) -> None:
        """The process runs."""
        await exchange.answer_json({"status": "ok"})

    async def tell_ready(self, exchange: Exchange) -> None:
        """A model has a worker, somebody can be let in, and the router is not about to stop; 503 if not."""
        if obstacle := self._health.obstacle:
            await exchange.answer_json({"status": "not ready", "why": obstacle}, status=503)
        else:
            await exchange.answer_json({"status": "ready"})

    async def tell_metrics(self, exchange: Exchange) -> None:
        """All metrics of the router: models, tenants' load and refusals, which are not for every caller."""
        if not self._shows_metrics:
            raise protocol_violated("PATH_UNKNOWN", "path", "metrics are not shown here: they are where telemetry.metrics_listen says")
        await exchange.answer(generate_latest(self._registry), content_type=CONTENT_TYPE_LATEST.encode())

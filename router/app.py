"""The composition root: the whole object graph on one screen, constructors only.

`build(config)` gives an App; `async with app.running():` starts everything and stops it in reverse order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry, start_http_server
from tidegate.v1 import admin_service_pb2_grpc, chat_service_pb2_grpc
from tritonclient.grpc.service_pb2_grpc import add_GRPCInferenceServiceServicer_to_server

from router.auth.assemble import Identity, assemble_identity
from router.auth.refusals import Refusals
from router.choice import Chooser
from router.config import Config, cannot_bind
from router.degradation.cascade import FeaturePredictor
from router.ledger.ledger import Ledger
from router.models import Model, Models
from router.parts import build_admin, build_pool, build_provider, find_obstacle, load_tokenizer
from router.pipeline import Pipeline
from router.pool import Pool
from router.quota.assemble import Counting, assemble_quota
from router.quota.terms import Terms
from router.spending import Spending
from router.store.identity import IdentityStore
from router.store.store import Store
from router.store.terms import TermsStore
from router.store.usage import UsageStore
from router.telemetry import Metrics, Tracing
from router.transport.admin_api import AdminService
from router.transport.exchange.redis import RedisExchange
from router.transport.grpc_api import ChatService
from router.transport.health import SERVICE, Health
from router.transport.http.door import HttpDoor
from router.transport.identity import Gate
from router.transport.kserve.service import SERVICE as KSERVE
from router.transport.kserve.service import KServeService
from router.transport.reflected import reflection_v1
from router.transport.requests import ReadingInterceptor
from router.transport.status import StatusInterceptor
from router.transport.streams import Streams
from router.transport.tls import server_credentials
from router.upstream.link import Owner
from router.upstream.worker import Worker

_OPTIONS = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),  # whoever pings each second has a reason, and its streams are not to end for it
    ("grpc.compression_enabled_algorithms_bitset", 1),  # none: a few kilobytes would be inflated before anybody asks who calls
    ("grpc.so_reuseport", 0),  # a second router on the same port must fail, not share it
)

REFLECTED = (SERVICE, "tidegate.v1.AdminService", KSERVE, "grpc.health.v1.Health", reflection.SERVICE_NAME)

log = logging.getLogger("tidegate.app")


def build(config: Config) -> App:
    """Makes every object and starts nothing. Must run inside the event loop. Raises ConfigInvalid."""
    executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tokenize")
    models = Models([Model(model, load_tokenizer(model.path), executor) for model in config.models], config.aliases)
    store = Store(config.store)
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    identity = assemble_identity(config.auth, config.store.folder, IdentityStore(store.database), Refusals(metrics.auth_refusals))
    counting = assemble_quota(config.quota)
    terms = Terms(TermsStore(store.database), time.time, lambda drained: drain_workers(pools, drained))
    ledger = Ledger(config.store.folder / "ledger", UsageStore(store.database))
    spending = Spending(terms, counting.quota, ledger, identity.keys, router=config.name, now=time.time)
    health = Health()
    provider = build_provider(config.telemetry)
    owner = Owner(config.name, lambda: tell_health(health, pools), on_receipts=spending.take_receipts)
    pools = {
        it.name: build_pool(model, it, config, owner, metrics, executor=executor) for model, it in zip(models, config.models, strict=True)
    }
    tell_health(health, pools)
    pipeline = Pipeline(
        models=models,
        chooser=Chooser(models, pools, terms, FeaturePredictor(), time.monotonic),
        authenticator=identity.authenticator,
        spending=spending,
        limits=config.limits,
        salt=identity.keys.salt,
        tracing=Tracing(provider),
        metrics=metrics,
    )
    redis = config.quota.redis.get_secret_value()
    exchange = RedisExchange(redis, lease_s=config.resume.lease_s) if redis else None
    streams = Streams(pipeline, config.limits, config.timeouts, config.resume, metrics, exchange=exchange)
    service = ChatService(pipeline, streams)
    kserve = KServeService(pipeline=pipeline, models=models, health=health, limits=config.limits, timeouts=config.timeouts, metrics=metrics)
    admin = build_admin(store.database, identity, terms, pools)
    http = HttpDoor(
        config=config,
        pipeline=pipeline,
        models=models,
        authenticator=identity.authenticator,
        health=health,
        registry=registry,
        streams=streams,
    )
    doors = (streams, service, kserve, admin, http, health)
    return App(config, pools, store, identity, terms, counting, ledger, exchange, *doors, provider, registry, executor)


def tell_health(health: Health, pools: Mapping[str, Pool]) -> None:
    """A worker came or went: the health service tells which models have one."""
    health.publish({model: pool.fleet.is_served for model, pool in pools.items()})


def drain_workers(pools: Mapping[str, Pool], drained: frozenset[str]) -> None:
    """These are all workers, by address, that get no new turns."""
    for pool in pools.values():
        pool.fleet.set_drained(drained)


@dataclass(frozen=True, slots=True)
class App:
    """A router, built and not started."""

    config: Config
    pools: Mapping[str, Pool]
    store: Store
    identity: Identity
    terms: Terms
    counting: Counting
    ledger: Ledger
    exchange: RedisExchange | None
    streams: Streams
    service: ChatService
    kserve: KServeService
    admin: AdminService
    http: HttpDoor
    health: Health
    provider: TracerProvider
    registry: CollectorRegistry
    executor: ThreadPoolExecutor

    @property
    def workers(self) -> Iterator[Worker]:
        """Those of all models."""
        return (worker for pool in self.pools.values() for worker in pool.fleet)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Endpoints]:
        """Runs the router. Leaving it drains: turns finish within the configured time, then everything stops.

        Raises ConfigInvalid and StartFailed.
        """
        async with AsyncExitStack() as stack:
            stack.callback(self.executor.shutdown)
            stack.callback(self.provider.shutdown)
            server, port = self._build_server()
            metrics = self._serve_metrics(stack)
            await stack.enter_async_context(self.counting.running())
            await stack.enter_async_context(self.store.running(self.identity.keys.names, shares=self.counting.redis is not None))
            await stack.enter_async_context(self.identity.running())
            await stack.enter_async_context(self.terms.running())
            await stack.enter_async_context(self.ledger.running())
            if self.exchange:
                await stack.enter_async_context(self.exchange)
            for pool in self.pools.values():
                await stack.enter_async_context(pool.running())
            stack.push_async_callback(_cancel, _start(self.health.watch(self._find_obstacle)))
            stack.push_async_callback(_cancel, _start(self.streams.watch()))
            stack.push_async_callback(_cancel, _start(self.kserve.watch_streams()))
            await server.start()
            stack.push_async_callback(server.stop, 1.0)
            http = await self._serve_http(stack)
            stack.push_async_callback(self._drain)
            stack.callback(self.admin.close)
            stack.callback(self.health.close)
            yield Endpoints(f"{self.config.listen.rpartition(':')[0]}:{port}", metrics, http)

    def _find_obstacle(self) -> str:
        return find_obstacle(self.identity, self.counting, self.ledger)

    async def _serve_http(self, stack: AsyncExitStack) -> str:
        if not self.config.http.listen:
            return ""
        address = await self.http.start()
        stack.push_async_callback(self.http.stop, 1.0)
        return address

    async def _drain(self) -> None:
        grace_s = self.config.timeouts.drain_s
        await asyncio.gather(*(door.drain(grace_s) for door in (self.streams, self.service, self.kserve, self.http)))

    def _build_server(self) -> tuple[grpc.aio.Server, int]:
        limits = self.config.limits
        server = grpc.aio.server(
            interceptors=(ReadingInterceptor(limits.max_message_bytes), StatusInterceptor(Gate(self.identity.authenticator).admit)),
            # Above our own limit, so that a message that is somewhat too large gets our status and leaves the connection usable.
            options=(("grpc.max_receive_message_length", 4 * limits.max_message_bytes), *_OPTIONS),
            maximum_concurrent_rpcs=limits.max_streams,
        )
        chat_service_pb2_grpc.add_ChatServiceServicer_to_server(self.service, server)
        add_GRPCInferenceServiceServicer_to_server(self.kserve, server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, server)
        admin_service_pb2_grpc.add_AdminServiceServicer_to_server(self.admin, server)
        reflection.enable_server_reflection(REFLECTED, server)
        server.add_generic_rpc_handlers((reflection_v1(REFLECTED),))
        return server, self._bind(server)

    def _bind(self, server: grpc.aio.Server) -> int:
        listen, tls = self.config.listen, self.config.tls
        try:
            return server.add_secure_port(listen, server_credentials(tls)) if tls else server.add_insecure_port(listen)
        except RuntimeError:
            raise cannot_bind("listen", listen) from None

    def _serve_metrics(self, stack: AsyncExitStack) -> str:
        listen = self.config.telemetry.metrics_listen
        if not listen:
            return ""
        host, _, port = listen.rpartition(":")
        try:
            server, thread = start_http_server(int(port), host.strip("[]"), self.registry)
        except OSError:
            raise cannot_bind("telemetry.metrics_listen", listen) from None
        stack.callback(thread.join)
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        return f"{host}:{server.server_port}"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where a running router listens, host:port; `metrics` and `http` are empty when it serves none."""

    grpc: str
    metrics: str
    http: str


def _start(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.create_task(coroutine)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

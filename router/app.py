"""The composition root: the whole object graph on one screen, constructors only.

`build(config)` gives an App; `async with app.running():` starts everything and stops it in reverse order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from prometheus_client import CollectorRegistry, start_http_server
from tidegate.v1 import chat_service_pb2_grpc

from router.admission.entry import QueueLimits
from router.admission.estimate import TimeModel
from router.admission.queue import AdmissionQueue
from router.auth.assemble import Identity, assemble_identity
from router.config import Config, ConfigInvalid, Queue, Telemetry
from router.ledger.ledger import Ledger
from router.model import ModelFacts, WorkerLoad
from router.models import Model, Models
from router.pipeline import Pipeline
from router.quota.assemble import Counting, assemble_quota
from router.quota.terms import Terms
from router.routing.workers import Workers
from router.spending import Spending
from router.store.identity import IdentityStore
from router.store.store import Store
from router.store.terms import TermsStore
from router.store.usage import UsageStore
from router.telemetry import Metrics, Tracing
from router.text.tokenizer import InvalidModel, Tokenizer
from router.transport.grpc_api import ChatService
from router.transport.health import SERVICE, Health
from router.transport.identity import Gate
from router.transport.requests import ReadingInterceptor
from router.transport.status import StatusInterceptor
from router.transport.tls import server_credentials
from router.upstream.link import Owner
from router.upstream.worker import Worker

_KEEPALIVE = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.so_reuseport", 0),  # a second router on the same port must fail, not share it
)

log = logging.getLogger("tidegate.app")


def build(config: Config) -> App:
    """Makes every object and starts nothing. Must run inside the event loop. Raises ConfigInvalid."""
    executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tokenize")
    models = Models([Model(model, _load_tokenizer(model.path), executor) for model in config.models])
    store = Store(config.store)
    identity = assemble_identity(config.auth, config.store.folder, IdentityStore(store.database))
    counting = assemble_quota(config.quota)
    terms = Terms(TermsStore(store.database), time.time)
    ledger = Ledger(config.store.folder / "ledger", UsageStore(store.database))
    spending = Spending(terms, counting.quota, ledger, config.name, time.time)
    health = Health()
    owner = Owner(config.name, lambda: take_change(health, workers, queues), spending.take_receipts)
    workers = Workers(
        {
            model.name: [Worker(address, _facts(model), config.timeouts, owner) for address in addresses]
            for model, addresses in zip(models, (it.workers for it in config.models), strict=True)
        }
    )
    queues = {model: _build_queue(config.queue, workers, model) for model in workers.models}
    take_change(health, workers, queues)
    provider = _build_provider(config.telemetry)
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    for worker in workers:
        export_worker(metrics, worker)
    for model, queue in queues.items():
        export_queue(metrics, model, queue)
    pipeline = Pipeline(
        models=models,
        workers=workers,
        queues=queues,
        authenticator=identity.authenticator,
        spending=spending,
        limits=config.limits,
        tracing=Tracing(provider),
        metrics=metrics,
    )
    service = ChatService(pipeline, config.limits, config.timeouts, metrics)
    return App(config, workers, queues, store, identity, terms, counting, ledger, service, health, provider, registry, executor)


def take_change(health: Health, workers: Workers, queues: Mapping[str, AdmissionQueue]) -> None:
    """A worker came or went: the health service tells which models have one, and turns that wait may go."""
    health.publish({model: workers.is_served(model) for model in workers.models})
    for queue in queues.values():
        queue.poke()


def export_worker(metrics: Metrics, worker: Worker) -> None:
    """Shows a worker's state and load on /metrics, read at each scrape."""
    metrics.worker_up.labels(worker.address).set_function(lambda: float(worker.up))
    for figure in fields(WorkerLoad):
        metrics.worker_load.labels(worker.address, figure.name).set_function(partial(_read_load, worker, figure.name))


def export_queue(metrics: Metrics, model: str, queue: AdmissionQueue) -> None:
    """Shows a queue on /metrics, read at each scrape."""
    metrics.queued_turns.labels(model).set_function(lambda: float(queue.waiting))


@dataclass(frozen=True, slots=True)
class App:
    """A router, built and not started."""

    config: Config
    workers: Workers
    queues: Mapping[str, AdmissionQueue]
    store: Store
    identity: Identity
    terms: Terms
    counting: Counting
    ledger: Ledger
    service: ChatService
    health: Health
    provider: TracerProvider
    registry: CollectorRegistry
    executor: ThreadPoolExecutor

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
            await stack.enter_async_context(self.store.running(shares=self.counting.redis is not None))
            await stack.enter_async_context(self.identity.running())
            await stack.enter_async_context(self.terms.running())
            await stack.enter_async_context(self.ledger.running())
            for worker in self.workers:
                stack.push_async_callback(_cancel, _start(worker.run()))
            stack.push_async_callback(_cancel, _start(self.service.watch_streams()))
            await server.start()
            stack.push_async_callback(server.stop, 1.0)
            stack.push_async_callback(self.service.drain, self.config.timeouts.drain_s)
            stack.callback(self.health.close)
            yield Endpoints(f"{self.config.listen.rpartition(':')[0]}:{port}", metrics)

    def _build_server(self) -> tuple[grpc.aio.Server, int]:
        limits = self.config.limits
        server = grpc.aio.server(
            interceptors=(ReadingInterceptor(limits.max_message_bytes), StatusInterceptor(Gate(self.identity.authenticator).admit)),
            # Above our own limit, so that a message that is somewhat too large gets our status and leaves the connection usable.
            options=(("grpc.max_receive_message_length", 4 * limits.max_message_bytes), *_KEEPALIVE),
            maximum_concurrent_rpcs=limits.max_streams,
        )
        chat_service_pb2_grpc.add_ChatServiceServicer_to_server(self.service, server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, server)
        reflection.enable_server_reflection((SERVICE, "grpc.health.v1.Health", reflection.SERVICE_NAME), server)
        return server, self._bind(server)

    def _bind(self, server: grpc.aio.Server) -> int:
        listen, tls = self.config.listen, self.config.tls
        try:
            return server.add_secure_port(listen, server_credentials(tls)) if tls else server.add_insecure_port(listen)
        except RuntimeError:
            raise ConfigInvalid(f"listen: cannot bind {listen}") from None

    def _serve_metrics(self, stack: AsyncExitStack) -> str:
        if not self.config.telemetry.metrics_listen:
            return ""
        host, _, port = self.config.telemetry.metrics_listen.rpartition(":")
        server, thread = start_http_server(int(port), host, self.registry)
        stack.callback(thread.join)
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        return f"{host}:{server.server_port}"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where a running router listens, host:port; `metrics` is empty when it serves none."""

    grpc: str
    metrics: str


def _facts(model: Model) -> ModelFacts:
    """What a stock worker must be told of the model, or cannot tell of it."""
    return ModelFacts(model.name, model.tokenizer.eos_ids, model.tokenizer.context, model.tokenizer.vocab_size)


def _build_queue(config: Queue, workers: Workers, model: str) -> AdmissionQueue:
    limits = QueueLimits(config.length, config.tenant_share, config.longest_wait_s, config.standard_wait_s, config.batch_wait_s)
    return AdmissionQueue(partial(workers.count_slots, model), time.monotonic, TimeModel(), limits)


def _load_tokenizer(folder: Any) -> Tokenizer:
    try:
        return Tokenizer.load(folder)
    except InvalidModel as error:
        raise ConfigInvalid(f"models.path: {error}") from error


def _read_load(worker: Worker, figure: str) -> float:
    return float(getattr(worker.load, figure))


def _build_provider(telemetry: Telemetry) -> TracerProvider:
    sampler = ParentBased(TraceIdRatioBased(telemetry.sample_ratio if telemetry.otlp_endpoint else 0.0))
    provider = TracerProvider(sampler=sampler, resource=Resource.create({"service.name": "tidegate-router"}))
    if telemetry.otlp_endpoint:
        exporter = GrpcExporter if telemetry.otlp_protocol == "grpc" else HttpExporter
        provider.add_span_processor(BatchSpanProcessor(exporter(endpoint=telemetry.otlp_endpoint), schedule_delay_millis=500))
    return provider


def _start(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.create_task(coroutine)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

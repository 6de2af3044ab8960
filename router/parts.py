"""Parts of the composition root: objects that take more than a line to make."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from router.admin.identity import IdentityAdmin
from router.admin.reports import Reports
from router.admin.terms import TermsAdmin
from router.admin.workers import WorkersAdmin
from router.admission.entry import QueueLimits
from router.admission.estimate import TimeModel
from router.admission.queue import AdmissionQueue
from router.auth.assemble import Identity
from router.config import Config, ConfigInvalid, Telemetry
from router.degradation.ladder import Ladder
from router.ledger.ledger import Ledger
from router.model import WorkerLoad
from router.model_config import ModelConfig
from router.models import Model
from router.pool import Pool
from router.quota.assemble import Counting
from router.quota.terms import Terms
from router.routing.book import MemoryBook
from router.routing.discovery import DiscoveryFailed, Dns, Source, Static, WatchedFile
from router.routing.fleet import Fleet
from router.routing.keeper import Keeper
from router.routing.kubernetes import EndpointSlices, find_api_server
from router.routing.policy import KvAware, LeastLoaded, Policy, RoundRobin, TwoChoices
from router.routing.redis_book import RedisBook
from router.store.database import Database
from router.telemetry import Metrics
from router.text.tokenizer import InvalidModel, Tokenizer
from router.transport.admin_api import AdminService
from router.upstream.access import Access
from router.upstream.link import Owner
from router.upstream.stock import ModelFacts
from router.upstream.worker import Worker


def describe_model(model: Model, settings: ModelConfig) -> ModelFacts:
    """What a stock worker must be told of the model, or cannot tell of it."""
    text = model.tokenizer
    return ModelFacts(model.name, text.eos_ids, text.context, text.vocab_size, settings.shared_prefixes)


def build_pool(model: Model, settings: ModelConfig, config: Config, owner: Owner, metrics: Metrics, *, executor: Executor) -> Pool:
    """A model's workers, and the queue in front of them. Raises ConfigInvalid."""
    access, facts = Access(config.worker_link), describe_model(model, settings)
    url, times = config.quota.redis.get_secret_value(), TimeModel()
    book = RedisBook(url, model.name, deadline_s=config.quota.redis_deadline_s) if url else MemoryBook()
    fleet = Fleet(
        lambda address, owner: Worker(address, facts, config.timeouts, owner, access),
        replace(owner, on_freed=lambda: queue.poke()),  # noqa: PLW0108 - the queue comes after its fleet
        book=book,
        times=times,
        policy=POLICIES[config.routing.policy](),
        clock=time.monotonic,
        slow_start_s=config.routing.slow_start_s,
    )
    queue = AdmissionQueue(fleet.count_slots, time.monotonic, times, QueueLimits(**dict(config.queue), slo_s=settings.slo_ttft_s))
    export_queue(metrics, model.name, queue)
    show, hide = partial(export_worker, metrics), partial(hide_worker, metrics)
    ladder = Ladder(settings.slo_ttft_s)
    metrics.downgrading.labels(model.name).set_function(lambda: float(ladder.is_degraded(time.monotonic())))
    return Pool(fleet, queue, ladder, Keeper(fleet, build_source(settings, executor), config.timeouts.drain_s, show, hide), book)


def build_admin(database: Database, identity: Identity, terms: Terms, pools: Mapping[str, Pool]) -> AdminService:
    """What operators and tenant admins see and change."""
    reports = Reports(database, {model: pool.queue for model, pool in pools.items()})
    workers = WorkersAdmin(database, {model: pool.fleet for model, pool in pools.items()}, lambda: terms.drained)
    return AdminService(IdentityAdmin(database, identity.keys, time.time), TermsAdmin(database, time.time), reports, workers)


def build_source(settings: ModelConfig, executor: Executor) -> Source:
    """Where a model's workers are. Raises ConfigInvalid."""
    found = settings.discovery
    if found is None:
        return Static(settings.workers)
    if found.file:
        return WatchedFile(found.file, executor)
    if found.dns:
        host, _, port = found.dns.rpartition(":")
        return Dns(host, int(port))
    assert found.service, "one of the three is set"
    namespace, service, port = re.split("[/:]", found.service)
    try:
        return EndpointSlices(find_api_server(os.environ), namespace, service, port)
    except DiscoveryFailed as failed:
        raise ConfigInvalid(f"models.discovery.service: {failed}") from failed


POLICIES: Mapping[str, Callable[[], Policy]] = {
    "kv_aware": KvAware,
    "round_robin": RoundRobin,
    "least_loaded": LeastLoaded,
    "two_choices": lambda: TwoChoices(random.Random()),
}


def load_tokenizer(folder: Path) -> Tokenizer:
    """A model's tokenizer and chat template. Raises ConfigInvalid."""
    try:
        return Tokenizer.load(folder)
    except InvalidModel as error:
        raise ConfigInvalid(f"models.path: {error}") from error


def _read_load(worker: Worker, figure: str) -> float:
    return float(getattr(worker.load, figure))


def build_provider(telemetry: Telemetry) -> TracerProvider:
    """Where spans go, and which are recorded."""
    sampler = ParentBased(TraceIdRatioBased(telemetry.sample_ratio if telemetry.otlp_endpoint else 0.0))
    provider = TracerProvider(sampler=sampler, resource=Resource.create({"service.name": "tidegate-router"}))
    if telemetry.otlp_endpoint:
        exporter = GrpcExporter if telemetry.otlp_protocol == "grpc" else HttpExporter
        provider.add_span_processor(BatchSpanProcessor(exporter(endpoint=telemetry.otlp_endpoint), schedule_delay_millis=500))
    return provider


def export_queue(metrics: Metrics, model: str, queue: AdmissionQueue) -> None:
    """Shows on /metrics what a model's workers are asked for, read at each scrape: what to scale them by."""
    metrics.queued_turns.labels(model).set_function(lambda: float(queue.waiting))
    metrics.queued_tokens.labels(model).set_function(lambda: queue.waiting_tokens)
    metrics.predicted_first_token.labels(model).set_function(queue.predict_first_token)
    metrics.busy.labels(model).set_function(lambda: queue.busy_fraction)


def export_worker(metrics: Metrics, worker: Worker) -> None:
    """Shows a worker's state and load on /metrics, read at each scrape."""
    metrics.worker_up.labels(worker.address).set_function(lambda: float(worker.up))
    for figure in fields(WorkerLoad):
        metrics.worker_load.labels(worker.address, figure.name).set_function(partial(_read_load, worker, figure.name))


def hide_worker(metrics: Metrics, worker: Worker) -> None:
    """Takes a worker that has left off /metrics."""
    metrics.worker_up.remove(worker.address)
    for figure in fields(WorkerLoad):
        metrics.worker_load.remove(worker.address, figure.name)


def find_obstacle(identity: Identity, counting: Counting, ledger: Ledger) -> str:
    """Why no turn of anybody could begin now, whatever workers there are; empty when one could."""
    if not identity.authenticator.is_able:
        return "credentials cannot be checked"
    if counting.refuses_all:
        return "limits cannot be checked"
    return "" if ledger.has_room else "usage cannot be recorded"

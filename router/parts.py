"""Parts of the composition root: objects that take more than a line to make."""

from __future__ import annotations

import time
from dataclasses import fields
from functools import partial
from pathlib import Path

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from router.admission.entry import QueueLimits
from router.admission.estimate import TimeModel
from router.admission.queue import AdmissionQueue
from router.config import ConfigInvalid, Queue, Telemetry
from router.model import ModelFacts, WorkerLoad
from router.models import Model
from router.routing.workers import Workers
from router.telemetry import Metrics
from router.text.tokenizer import InvalidModel, Tokenizer
from router.upstream.worker import Worker


def describe_model(model: Model) -> ModelFacts:
    """What a stock worker must be told of the model, or cannot tell of it."""
    return ModelFacts(model.name, model.tokenizer.eos_ids, model.tokenizer.context, model.tokenizer.vocab_size)


def build_queue(config: Queue, workers: Workers, model: str) -> AdmissionQueue:
    """The queue in front of a model's workers."""
    limits = QueueLimits(config.length, config.tenant_share, config.longest_wait_s, config.standard_wait_s, config.batch_wait_s)
    return AdmissionQueue(partial(workers.count_slots, model), time.monotonic, TimeModel(), limits)


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


def export_worker(metrics: Metrics, worker: Worker) -> None:
    """Shows a worker's state and load on /metrics, read at each scrape."""
    metrics.worker_up.labels(worker.address).set_function(lambda: float(worker.up))
    for figure in fields(WorkerLoad):
        metrics.worker_load.labels(worker.address, figure.name).set_function(partial(_read_load, worker, figure.name))


def export_queue(metrics: Metrics, model: str, queue: AdmissionQueue) -> None:
    """Shows a queue on /metrics, read at each scrape."""
    metrics.queued_turns.labels(model).set_function(lambda: float(queue.waiting))

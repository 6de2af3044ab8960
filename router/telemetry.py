"""Spans and metrics of the router.

Spans are made explicitly and ended in `finally`; none is ever current across an await, where a cancelled task would detach it in the wrong
context. A turn is one `chat` span with a child per stage, named by OpenTelemetry's GenAI conventions. Neither prompts nor answers are in
them. Metric labels come from configuration and from closed sets, never from callers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_W3C = TraceContextTextMapPropagator()
_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The router's Prometheus families."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.turns = Counter("tidegate_turns", "Turns ended", ["model", "outcome"], registry=registry)
        self.active_turns = Gauge("tidegate_active_turns", "Turns running", ["model"], registry=registry)
        self.prompt_tokens = Counter("tidegate_prompt_tokens", "Prompt tokens", ["model"], registry=registry)
        self.completion_tokens = Counter("tidegate_completion_tokens", "Tokens produced", ["model"], registry=registry)
        self.first_token = Histogram(
            "tidegate_time_to_first_token_seconds", "Time to first token", ["model"], buckets=_LATENCY_BUCKETS, registry=registry
        )
        self.duration = Histogram("tidegate_turn_seconds", "Length of a turn", ["model"], buckets=_LATENCY_BUCKETS, registry=registry)
        self.moved_turns = Counter(
            "tidegate_moved_turns", "Turns that went on on another worker, by what befell the first", ["model", "reason"], registry=registry
        )
        self.queued_turns = Gauge("tidegate_queued_turns", "Turns that wait for a worker", ["model"], registry=registry)
        self.downgraded = Counter(
            "tidegate_downgraded_turns", "Turns that a smaller model answers", ["model", "to_model", "reason"], registry=registry
        )
        self.downgrading = Gauge(
            "tidegate_downgrading", "Whether a smaller model answers turns that would wait for too long", ["model"], registry=registry
        )
        self.auth_refusals = Counter("tidegate_auth_refusals", "Callers refused, by why", ["reason"], registry=registry)
        self.streams = Gauge("tidegate_streams", "Open streams of callers", registry=registry)
        self.resumed_streams = Counter("tidegate_resumed_streams", "Streams taken up again by their callers", registry=registry)
        self.detached_streams = Gauge("tidegate_detached_streams", "Streams that wait for their callers to come back", registry=registry)
        self.queued_tokens = Gauge(
            "tidegate_queued_tokens", "Tokens, prompt not cached and answer as expected, of turns that wait", ["model"], registry=registry
        )
        self.predicted_first_token = Gauge(
            "tidegate_predicted_time_to_first_token_seconds",
            "Time to the first token of a turn like those of late, if it came now",
            ["model"],
            registry=registry,
        )
        self.busy = Gauge(
            "tidegate_busy_fraction", "Turns that run, of those that the workers run at once for this router", ["model"], registry=registry
        )
        self.worker_up = Gauge("tidegate_worker_up", "Whether a worker's lane is open", ["worker"], registry=registry)
        self.worker_load = Gauge("tidegate_worker_load", "A worker's own figures", ["worker", "figure"], registry=registry)
        self._of_models: dict[str, ModelMetrics] = {}

    def of_model(self, model: str) -> ModelMetrics:
        """What every turn of a model counts, looked up once."""
        if (found := self._of_models.get(model)) is None:
            found = self._of_models[model] = ModelMetrics(
                self.active_turns.labels(model),
                self.first_token.labels(model),
                self.duration.labels(model),
                self.prompt_tokens.labels(model),
                self.completion_tokens.labels(model),
            )
        return found


@dataclass(frozen=True, slots=True)
class ModelMetrics:
    """One model's children of the families."""

    active_turns: Gauge
    first_token: Histogram
    duration: Histogram
    prompt_tokens: Counter
    completion_tokens: Counter


@dataclass(frozen=True, slots=True)
class TurnSpan:
    """A turn's span and what its children need."""

    span: Span
    tracer: Tracer

    @contextmanager
    def stage(self, name: str) -> Iterator[Span]:
        """A child span around one stage of the pipeline; the turn's own, where it is not recorded."""
        if not self.span.is_recording():
            yield self.span
            return
        span = self.tracer.start_span(name, context=set_span_in_context(self.span))
        try:
            yield span
        except BaseException as error:
            mark_error(span, type(error).__name__)
            raise
        finally:
            span.end()


class Tracing:
    """Makes turn spans."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("tidegate.router")

    @contextmanager
    def turn(self, caller_headers: Mapping[str, str], model: str) -> Iterator[TurnSpan]:
        """The span of one turn, under the caller's span where the headers name one. How the turn ended is for its owner to say."""
        parent = _W3C.extract(caller_headers) if caller_headers else None
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model, "gen_ai.provider.name": "tidegate"}
        span = self._tracer.start_span(f"chat {model}", context=parent, kind=SpanKind.SERVER, attributes=attributes)
        try:
            yield TurnSpan(span, self._tracer)
        finally:
            span.end()


def mark_error(span: Span, kind: str) -> None:
    """Marks a span as failed; `kind` is an error reason or class name, never a message."""
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, kind))


def trace_headers(span: Span) -> dict[str, str]:
    """W3C headers that make the next hop a child of `span`; empty when the span is not recorded."""
    headers: dict[str, str] = {}
    if span.get_span_context().trace_flags.sampled and span.is_recording():
        _W3C.inject(headers, context=set_span_in_context(span))
    return headers


class Stopwatch:
    """Monotonic seconds since it was made."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def seconds(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self._started

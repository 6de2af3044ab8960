"""Engine spans: `engine` with children `queue`, `prefill` and `decode`, under the span that Triton made for the request.

They are written once, when a request has ended, from the times the engine took: nothing is added to a step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from server.engine.base import Finish, Output, Timing


class EngineSpans:
    """Hands engine spans to a processor; without one, none are made."""

    def __init__(self, processor: SpanProcessor | None) -> None:
        self._provider = TracerProvider(resource=Resource.create({"service.name": "tidegate-engine"}))
        if processor:
            self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("tidegate.engine")
        self._enabled = processor is not None

    def open_request(self, headers: Mapping[str, str]) -> Callable[[Output], None]:
        """What to call when the request ends. `headers` are W3C's, none when it is not traced."""
        if not (self._enabled and headers):
            return _write_nothing
        parent = TraceContextTextMapPropagator().extract(headers)
        return lambda output: _write_spans(self._tracer, parent, output)

    def close(self) -> None:
        """Exports what is left."""
        self._provider.shutdown()


def export_to(endpoint: str) -> SpanProcessor | None:
    """Exports to an OTLP/HTTP endpoint in batches; nothing for an empty endpoint."""
    return BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint), schedule_delay_millis=500) if endpoint else None


def read_headers(trace_context: str | None) -> dict[str, str]:
    """The W3C headers of Triton's span: it tells them as JSON, and None for a request that is not traced."""
    headers: dict[str, str] = json.loads(trace_context) if trace_context else {}
    return headers


def _write_nothing(output: Output) -> None:
    """An untraced request."""


def _write_spans(tracer: Tracer, parent: Context, output: Output) -> None:
    timing = output.timing
    if timing is None:
        return
    root = tracer.start_span("engine", context=parent, start_time=timing.arrived_ns, attributes=_attributes(output))
    if output.finish in (Finish.FAILED, Finish.REFUSED):
        root.set_status(Status(StatusCode.ERROR, output.error))
    _write_stages(tracer, set_span_in_context(root), timing)
    root.end(timing.arrived_ns + timing.queue_ns + timing.prefill_ns + timing.decode_ns)


def _write_stages(tracer: Tracer, context: Context, timing: Timing) -> None:
    at = timing.arrived_ns
    for name, length in (("queue", timing.queue_ns), ("prefill", timing.prefill_ns), ("decode", timing.decode_ns)):
        tracer.start_span(name, context=context, start_time=at).end(at + length)
        at += length


def _attributes(output: Output) -> dict[str, str]:
    return {"tidegate.finish": output.finish.name.lower()}

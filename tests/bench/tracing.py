"""A caller's trace, and the spans that a router makes under it."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.bench.router import Router

SAMPLED = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
"""Headers of a caller that records its trace: without a collector of its own the router records such turns only."""


def caller_trace(number: int) -> dict[str, str]:
    """Headers of another caller's recorded trace; its trace id and span id are `number`."""
    return {"traceparent": f"00-{number:032x}-{number:016x}-01"}


class Spans:
    """The finished spans of a router."""

    def __init__(self, router: Router) -> None:
        self._exporter = InMemorySpanExporter()
        router.app.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self) -> Sequence[ReadableSpan]:
        """In the order in which they ended."""
        return self._exporter.get_finished_spans()

    @property
    def turns(self) -> list[ReadableSpan]:
        """Those of turns, without their stages."""
        return [span for span in self.all if span.name.startswith("chat ")]

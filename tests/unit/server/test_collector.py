"""The trace receiver: what it takes, what it keeps, what it refuses, and how a trace is drawn."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from server.collector import BODY_BYTES, Collector, ExportRefused, SpanRecord, TraceStore, parse_export, render_waterfall

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
JSON = "application/json"
# As Triton 2.51 posts it, shortened.
TRITON_EXPORT = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "triton"}}]},
            "scopeSpans": [
                {
                    "scope": {"name": "triton-server"},
                    "spans": [
                        {
                            "attributes": [
                                {"key": "triton.model_name", "value": {"stringValue": "probe"}},
                                {"key": "triton.model_version", "value": {"intValue": "1"}},
                            ],
                            "events": [{"name": "REQUEST_START", "timeUnixNano": "1795991760123063499"}],
                            "startTimeUnixNano": "1795991760123063499",
                            "endTimeUnixNano": 1795991760138372203,
                            "kind": 2,
                            "name": "probe",
                            "parentSpanId": "0cb87eb800de5900",
                            "spanId": SPAN,
                            "traceId": TRACE,
                            "aFieldOfTomorrow": True,
                        }
                    ],
                }
            ],
        }
    ]
}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector.start() as running:
        yield running


def post(collector: Collector, body: bytes, content_type: str = JSON, **headers: str) -> int:
    address = urlsplit(collector.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    try:
        connection.request("POST", address.path, body, {"Content-Type": content_type, **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def export_of(**changes: Any) -> bytes:
    span = {"traceId": TRACE, "spanId": SPAN, "name": "a"} | changes
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def span_of(span_id: str, parent_id: str = "", start_ms: float = 0, end_ms: float = 1, **changes: Any) -> SpanRecord:
    values = {"trace_id": TRACE, "name": span_id, "service": "router", "attributes": {}} | changes
    return SpanRecord(span_id=span_id, parent_id=parent_id, start_ns=int(start_ms * 1e6), end_ns=int(end_ms * 1e6), **values)


def test_json_of_triton_is_taken(collector: Collector) -> None:
    """Triton's JSON, with ids in hexadecimal and times as strings or numbers, becomes a span."""
    assert post(collector, json.dumps(TRITON_EXPORT).encode()) == 200
    assert collector.spans(TRACE) == [
        SpanRecord(
            trace_id=TRACE,
            span_id=SPAN,
            parent_id="0cb87eb800de5900",
            name="probe",
            service="triton",
            start_ns=1795991760123063499,
            end_ns=1795991760138372203,
            attributes={"triton.model_name": "probe", "triton.model_version": 1},
        )
    ]


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_exporter_of_the_sdk_is_taken(collector: Collector, compression: Compression) -> None:
    """OpenTelemetry's own exporter gets its spans through, as protobuf, gzipped or not."""
    provider = TracerProvider(resource=Resource.create({"service.name": "engine"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=collector.url, compression=compression)))
    with provider.get_tracer("test").start_as_current_span("outer", attributes={"sizes": [1, 2], "warm": True}) as outer:
        provider.get_tracer("test").start_span("inner").end()
    provider.shutdown()
    spans = collector.spans(f"{outer.get_span_context().trace_id:032x}")
    assert [(span.name, span.service) for span in spans] == [("outer", "engine"), ("inner", "engine")]
    assert spans[0].attributes == {"sizes": [1, 2], "warm": True}
    assert spans[1].parent_id == spans[0].span_id


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]x",
        b"\xff",
        b"1",
        b'{"resourceSpans": 1}',
        b"[" * 100_000,
        export_of(traceId="zz"),
        export_of(traceId=7),
        export_of(spanId="b7ad"),
        export_of(startTimeUnixNano="soon"),
    ],
    ids=lambda body: repr(body[:24]),
)
def test_bad_json_is_refused(collector: Collector, body: bytes) -> None:
    """What is not OTLP in JSON gets 400, and the receiver goes on."""
    assert post(collector, body) == 400
    assert post(collector, export_of()) == 200


def test_bad_protobuf_is_refused(collector: Collector) -> None:
    """What is not OTLP in protobuf gets 400."""
    assert post(collector, b"\xff\xff", "application/x-protobuf") == 400


def test_other_kinds_are_refused(collector: Collector) -> None:
    """A type or an encoding that nobody sends gets 415."""
    assert post(collector, b"a: 1", "application/yaml") == 415
    assert post(collector, b"", **{"Content-Encoding": "br"}) == 415


@pytest.mark.parametrize("body", [b"not gzip", gzip.compress(export_of())[:-9]], ids=["plain", "cut"])
def test_bad_gzip_is_refused(collector: Collector, body: bytes) -> None:
    """A gzipped body that cannot be unzipped gets 400."""
    assert post(collector, body, **{"Content-Encoding": "gzip"}) == 400


def test_large_body_is_refused(collector: Collector) -> None:
    """A body over the limit gets 413."""
    assert post(collector, b" " * (BODY_BYTES + 1)) == 413


def test_gzip_bomb_is_refused() -> None:
    """A small body that unzips to over the limit is refused before it is held."""
    with pytest.raises(ExportRefused, match="once unzipped"):
        parse_export(gzip.compress(b" " * (BODY_BYTES + 1)), JSON, "gzip")


def test_other_paths_are_refused(collector: Collector) -> None:
    """Metrics and logs have no place here."""
    address = urlsplit(collector.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    connection.request("POST", "/v1/metrics", b"{}", {"Content-Type": JSON})
    assert connection.getresponse().status == 404
    connection.close()


def test_unknown_trace_has_no_spans(collector: Collector) -> None:
    """A trace nobody has sent is empty, not an error."""
    assert collector.spans("f" * 32) == []


def test_oldest_trace_makes_room() -> None:
    """The trace that has gone longest without a new span is dropped first."""
    store = TraceStore(max_traces=2, max_spans=9)
    store.add([span_of("a1", trace_id="a"), span_of("b1", trace_id="b"), span_of("a2", trace_id="a"), span_of("c1", trace_id="c")])
    assert {trace: len(store.spans(trace)) for trace in "abc"} == {"a": 2, "b": 0, "c": 1}


def test_spans_of_a_trace_are_bounded() -> None:
    """A trace that does not end keeps its first spans."""
    store = TraceStore(max_traces=2, max_spans=2)
    store.add(span_of(name) for name in "abc")
    assert [span.span_id for span in store.spans(TRACE)] == ["a", "b"]


def test_span_sent_twice_is_kept_once() -> None:
    """An exporter that retries does not double its spans."""
    store = TraceStore(max_traces=2, max_spans=9)
    store.add([span_of("a"), span_of("a")])
    assert len(store.spans(TRACE)) == 1


def test_waterfall_draws_the_tree() -> None:
    """Children stand under their parent by start time, with offset, length and a bar to scale."""
    spans = [
        span_of("decode", "root", 50, 100, service="engine"),
        span_of("prefill", "root", 10, 50, service="engine"),
        span_of("root", "elsewhere", 0, 100),
    ]
    assert render_waterfall(spans).splitlines() == [
        f"trace {TRACE}: 3 spans, 100.0 ms",
        " start ms  length ms",
        "      0.0      100.0  |========================================|  router  root",
        "     10.0       40.0  |    ================                    |  engine    prefill",
        "     50.0       50.0  |                    ====================|  engine    decode",
    ]


def test_waterfall_of_nothing_says_so() -> None:
    """A trace of which nothing has come yet is a sentence, not an error."""
    assert render_waterfall([]) == "no spans"


def test_waterfall_shows_spans_of_no_length() -> None:
    """A span too short to see still has a bar."""
    assert "|=  " in render_waterfall([span_of("a", start_ms=5, end_ms=5)])


def test_waterfall_does_not_steer_the_terminal() -> None:
    """Control characters in a name are replaced."""
    assert "\x1b" not in render_waterfall([span_of("a", name="\x1b[2J")])

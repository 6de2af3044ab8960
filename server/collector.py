"""A receiver of traces over OTLP/HTTP that keeps them in memory, for the local stack, the demo and the tests.

It takes protobuf as our exporters send it and JSON as Triton does, both plain or gzipped. The newest traces are kept, and
of each trace the first spans. Not for production: there is no authentication, and what is dropped is not counted.
"""

from __future__ import annotations

import base64
import json
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

TRACES_PATH = "/v1/traces"
JSON = "application/json"
PROTOBUF = "application/x-protobuf"
BODY_BYTES = 4 << 20
CLIENT_TIMEOUT_S = 10.0
GZIP_WBITS = 31


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """A finished span: ids in lower-case hexadecimal, times in nanoseconds since the epoch, `parent_id` empty at a root."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]


class BadBody(ValueError):
    """A request that cannot be taken, and the HTTP status that says so."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class TraceStore:
    """The newest `max_traces` traces, `max_spans` of each; a span that is sent twice is kept once. Safe from any thread."""

    def __init__(self, max_traces: int, max_spans: int) -> None:
        self._max_traces = max_traces
        self._max_spans = max_spans
        self._traces: OrderedDict[str, dict[str, SpanRecord]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, spans: Iterable[SpanRecord]) -> None:
        """Keep spans; a trace that gets one counts as new again."""
        with self._lock:
            for span in spans:
                trace = self._traces.setdefault(span.trace_id, {})
                self._traces.move_to_end(span.trace_id)
                if len(trace) < self._max_spans:
                    trace[span.span_id] = span
                while len(self._traces) > self._max_traces:
                    self._traces.popitem(last=False)

    def spans(self, trace_id: str) -> list[SpanRecord]:
        """Return a trace's spans by start time; none if it is unknown."""
        with self._lock:
            trace = self._traces.get(trace_id, {})
            return sorted(trace.values(), key=lambda span: span.start_ns)


class Collector:
    """A running receiver; a context manager that closes it. Made by `start`."""

    def __init__(self, server: ThreadingHTTPServer, store: TraceStore) -> None:
        self._server = server
        self._store = store
        self._thread = threading.Thread(target=server.serve_forever, name="collector", daemon=True)
        self._thread.start()

    @classmethod
    def start(cls, host: str = "127.0.0.1", port: int = 0, *, max_traces: int = 256, max_spans: int = 512) -> Self:
        """Listen on `host`; port 0 takes a free one. Raises OSError if the port is in use."""
        store = TraceStore(max_traces, max_spans)
        return cls(ThreadingHTTPServer((host, port), _make_handler(store)), store)

    @property
    def url(self) -> str:
        """Where exporters post to."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}{TRACES_PATH}"

    def spans(self, trace_id: str) -> list[SpanRecord]:
        """Return the spans received so far of a trace, by start time."""
        return self._store.spans(trace_id)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parse_body(body: bytes, content_type: str, encoding: str) -> list[SpanRecord]:
    """Return the spans of an OTLP export request. Raises BadBody: it is malformed, too large, or of an unknown kind."""
    if encoding == "gzip":
        body = _unzip(body)
    elif encoding:
        raise BadBody(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Encoding must be gzip")
    try:
        if content_type == JSON:
            return list(_read_request(ParseDict(_recode_ids(json.loads(body)), ExportTraceServiceRequest(), True)))
        if content_type == PROTOBUF:
            return list(_read_request(ExportTraceServiceRequest.FromString(body)))
    except (DecodeError, ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BadBody(HTTPStatus.BAD_REQUEST, "not an OTLP export request") from error
    raise BadBody(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Type must be {PROTOBUF} or {JSON}")


def render_waterfall(spans: Sequence[SpanRecord]) -> str:
    """Draw a trace as text: one line per span, indented under its parent, with its offset and duration in milliseconds."""

"""A receiver of traces over OTLP/HTTP that keeps them in memory, for the local stack, the demo and the tests.

It takes protobuf, as our exporters send it, and JSON, as Triton does, both plain or gzipped. The newest traces are kept, and
of each its first spans. It knows no callers and answers none but exporters, so it belongs on loopback.
"""

from __future__ import annotations

import base64
import json
import threading
import zlib
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
CHUNK_BYTES = 64 << 10
CLIENT_TIMEOUT_S = 10.0
CLOSE_POLL_S = 0.05
GZIP_WBITS = 31
BAR_WIDTH = 40


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


class ExportRefused(Exception):
    """A request that is not taken, and the HTTP status that says so."""

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
        """Keep spans; a trace that gets another one counts as new again."""
        with self._lock:
            for span in spans:
                trace = self._traces.setdefault(span.trace_id, {})
                self._traces.move_to_end(span.trace_id)
                if len(trace) < self._max_spans:
                    trace[span.span_id] = span
                if len(self._traces) > self._max_traces:
                    self._traces.popitem(last=False)

    def spans(self, trace_id: str) -> list[SpanRecord]:
        """Return a trace's spans by start time, none if it is unknown."""
        with self._lock:
            trace = self._traces.get(trace_id, {})
            return sorted(trace.values(), key=_start)


class Collector:
    """A running receiver; as a context manager it is closed at the end. Made by `start`."""

    def __init__(self, server: ThreadingHTTPServer, store: TraceStore) -> None:
        self._server = server
        self._store = store
        self._thread = threading.Thread(target=server.serve_forever, args=(CLOSE_POLL_S,), name="collector", daemon=True)
        self._thread.start()

    @classmethod
    def start(cls, host: str = "127.0.0.1", port: int = 0, *, max_traces: int = 256, max_spans: int = 512) -> Self:
        """Listen on `host`; port 0 takes a free one. Raises OSError if the port is in use."""
        store = TraceStore(max_traces, max_spans)
        return cls(ThreadingHTTPServer((host, port), partial(_Handler, store)), store)

    @property
    def url(self) -> str:
        """Where exporters are to post."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}{TRACES_PATH}"

    def spans(self, trace_id: str) -> list[SpanRecord]:
        """Return the spans of a trace received so far, by start time."""
        return self._store.spans(trace_id)

    def close(self) -> None:
        """Stop listening; what was received can still be read."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parse_export(body: bytes, content_type: str, encoding: str = "") -> list[SpanRecord]:
    """Return the spans of an OTLP export request. Raises ExportRefused: malformed, too large, or of another kind."""
    if encoding not in ("", "identity", "gzip"):
        raise ExportRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Encoding must be gzip")
    if content_type not in (JSON, PROTOBUF):
        raise ExportRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Type must be {PROTOBUF} or {JSON}")
    try:
        plain = _unzip(body) if encoding == "gzip" else body
        return list(_read_spans(_parse_json(plain) if content_type == JSON else _parse_protobuf(plain)))
    except (DecodeError, ParseError, ValueError, TypeError, RecursionError, zlib.error) as error:
        raise ExportRefused(HTTPStatus.BAD_REQUEST, "not an OTLP export request") from error


def render_waterfall(spans: Sequence[SpanRecord]) -> str:
    """Draw a trace as text: a line per span, indented under its parent, with its start and length in milliseconds."""
    if not spans:
        return "no spans"
    first = min(span.start_ns for span in spans)
    total = max(1, max(span.end_ns for span in spans) - first)
    column = max(len(span.service) for span in spans)
    lines = [f"trace {spans[0].trace_id}: {len(spans)} spans, {total / 1e6:.1f} ms", " start ms  length ms"]
    for depth, span in _walk_tree(spans):
        times = f"{(span.start_ns - first) / 1e6:9.1f}  {(span.end_ns - span.start_ns) / 1e6:9.1f}"
        bar = _draw_bar((span.start_ns - first) / total, (span.end_ns - first) / total)
        lines.append(f"{times}  |{bar}|  {_printable(span.service):{column}}  {'  ' * depth}{_printable(span.name)}")
    return "\n".join(lines)


class _Handler(BaseHTTPRequestHandler):
    timeout = CLIENT_TIMEOUT_S

    def __init__(self, store: TraceStore, *arguments: Any) -> None:
        self._store = store
        super().__init__(*arguments)

    def do_POST(self) -> None:
        try:
            if self.path != TRACES_PATH:
                raise ExportRefused(HTTPStatus.NOT_FOUND, f"post to {TRACES_PATH}")
            content_type = self.headers.get_content_type()
            self._store.add(parse_export(self._read_body(), content_type, self.headers.get("Content-Encoding", "")))
        except ExportRefused as error:
            self.send_error(error.status, str(error))
        else:
            self._answer(content_type, b"{}" if content_type == JSON else b"")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: exporters post several times a second."""

    def _read_body(self) -> bytes:
        given = self.headers.get("Content-Length", "")
        if not (given.isascii() and given.isdecimal()):
            raise ExportRefused(HTTPStatus.LENGTH_REQUIRED, "Content-Length must be given")
        length = int(given)
        if length <= BODY_BYTES:
            return self.rfile.read(length)
        # Read to its end all the same: closing on unread bytes would reset the connection under the answer.
        for at in range(0, length, CHUNK_BYTES):
            self.rfile.read(min(CHUNK_BYTES, length - at))
        raise ExportRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {BODY_BYTES} bytes")

    def _answer(self, content_type: str, body: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _unzip(body: bytes) -> bytes:
    unzip = zlib.decompressobj(GZIP_WBITS)
    plain = unzip.decompress(body, BODY_BYTES)
    if unzip.unconsumed_tail:
        raise ExportRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {BODY_BYTES} bytes once unzipped")
    if not unzip.eof:
        raise ValueError("gzip data is cut off")
    return plain


def _parse_protobuf(body: bytes) -> ExportTraceServiceRequest:
    return ExportTraceServiceRequest.FromString(body)


def _parse_json(body: bytes) -> ExportTraceServiceRequest:
    return ParseDict(json.loads(body, object_hook=_recode_ids), ExportTraceServiceRequest(), ignore_unknown_fields=True)


def _recode_ids(node: dict[str, Any]) -> dict[str, Any]:
    # OTLP writes ids in hexadecimal, where protobuf's own JSON mapping wants base64.
    ids = {"traceId", "spanId", "parentSpanId"} & node.keys()
    return node | {key: base64.b64encode(bytes.fromhex(node[key])).decode() for key in ids}


def _read_spans(request: ExportTraceServiceRequest) -> Iterator[SpanRecord]:
    for resource_spans in request.resource_spans:
        service = str(_read_attributes(resource_spans.resource.attributes).get("service.name", ""))
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield _read_span(span, service)


def _read_span(span: Span, service: str) -> SpanRecord:
    if len(span.trace_id) != 16 or len(span.span_id) != 8:
        raise ValueError("a trace id has 16 bytes, a span id 8")
    return SpanRecord(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        service=service,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_read_attributes(span.attributes),
    )


def _read_attributes(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    return {attribute.key: _read_value(attribute.value) for attribute in attributes}


def _read_value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_read_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _read_attributes(value.kvlist_value.values)
    return getattr(value, kind) if kind else None


def _walk_tree(spans: Sequence[SpanRecord]) -> Iterator[tuple[int, SpanRecord]]:
    known = {span.span_id for span in spans}
    children: defaultdict[str, list[SpanRecord]] = defaultdict(list)
    for span in sorted(spans, key=_start, reverse=True):
        children[span.parent_id if span.parent_id in known else ""].append(span)
    waiting = [(0, root) for root in children[""]]
    while waiting:
        depth, span = waiting.pop()
        yield depth, span
        waiting += [(depth + 1, child) for child in children[span.span_id]]


def _start(span: SpanRecord) -> int:
    return span.start_ns


def _draw_bar(start: float, end: float) -> str:
    left = min(BAR_WIDTH - 1, int(start * BAR_WIDTH))
    width = min(BAR_WIDTH - left, max(1, round((end - start) * BAR_WIDTH)))
    return f"{' ' * left}{'=' * width}".ljust(BAR_WIDTH)


def _printable(text: str) -> str:
    # A span's name comes from whoever made it and must not steer the terminal.
    return "".join(letter if letter.isprintable() else "?" for letter in text)

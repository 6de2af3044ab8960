"""Engine spans: one tree for each traced request, under the span that Triton made for it."""

from __future__ import annotations

import json

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from server.engine.base import Finish, Output, Timing
from server.spans import EngineSpans, export_to, read_headers

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACED = json.dumps({"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01"})
UNSAMPLED = json.dumps({"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-00"})
ENDED = Output(1, [], Finish.LENGTH, timing=Timing(1_000_000, 10, 200, 3000))


def write(trace_context: str | None, output: Output = ENDED) -> dict[str, ReadableSpan]:
    """The spans of a request that ended so, by name."""
    spans = EngineSpans(SimpleSpanProcessor(exporter := InMemorySpanExporter()))
    spans.open_request(read_headers(trace_context))(output)
    spans.close()
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_request_is_a_span_with_its_stages() -> None:
    """Engine, and below it queue, prefill and decode."""
    spans = write(TRACED)
    assert set(spans) == {"engine", "queue", "prefill", "decode"}
    assert [spans[name].parent for name in ("queue", "prefill", "decode")] == [spans["engine"].context] * 3
    assert spans["engine"].attributes == {"tidegate.finish": "length"}
    assert spans["engine"].resource.attributes["service.name"] == "tidegate-engine"


def test_the_engines_span_is_a_child_of_tritons() -> None:
    """So that one trace reaches from the caller to the engine."""
    engine = write(TRACED)["engine"]
    assert engine.parent is not None
    assert (f"{engine.parent.trace_id:032x}", f"{engine.parent.span_id:016x}") == (TRACE_ID, SPAN_ID)


def test_the_stages_follow_each_other_and_add_up() -> None:
    """The first begins when the request came, each begins where the last ended, and the last ends with the engine's span."""
    spans = write(TRACED)
    stages = [spans[name] for name in ("queue", "prefill", "decode")]
    assert [stage.end_time - stage.start_time for stage in stages if stage.end_time and stage.start_time] == [10, 200, 3000]
    assert [stage.start_time for stage in stages] == [spans["engine"].start_time, *(stage.end_time for stage in stages[:2])]
    assert (spans["engine"].start_time, spans["engine"].end_time) == (1_000_000, stages[2].end_time)


@pytest.mark.parametrize("trace_context", [None, "", UNSAMPLED], ids=["untraced", "empty", "not sampled"])
def test_an_untraced_request_writes_nothing(trace_context: str | None) -> None:
    """The caller's decision is kept."""
    assert write(trace_context) == {}


def test_a_request_that_never_ran_writes_nothing() -> None:
    """It was refused or cancelled: there are no times."""
    assert write(TRACED, Output(1, [], Finish.CANCELLED)) == {}


@pytest.mark.parametrize(
    ("finish", "status"),
    [(Finish.END_ID, StatusCode.UNSET), (Finish.CANCELLED, StatusCode.UNSET), (Finish.FAILED, StatusCode.ERROR)],
)
def test_only_what_the_engine_did_wrong_is_an_error(finish: Finish, status: StatusCode) -> None:
    """A caller who leaves is none."""
    engine = write(TRACED, Output(1, [], finish, timing=ENDED.timing, error="broken"))["engine"]
    assert engine.status.status_code is status


def test_without_a_processor_nothing_is_made() -> None:
    """An engine without an endpoint costs nothing for traces."""
    spans = EngineSpans(export_to(""))
    spans.open_request(read_headers(TRACED))(ENDED)
    spans.close()

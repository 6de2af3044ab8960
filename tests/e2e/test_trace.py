"""One trace through everything."""

from __future__ import annotations

from server.stack import Stack
from server.up import SERVICES, ask_traced


async def test_one_trace_from_the_caller_to_the_engine_step(stack: Stack) -> None:
    """Client, router, Triton and engine spans form one tree whose engine stages lie inside their parents."""
    _, spans = await ask_traced(stack, "What is the capital of France?")
    assert {span.service for span in spans} == set(SERVICES)
    by_id = {span.span_id: span for span in spans}
    roots = [span for span in spans if span.parent_id not in by_id]
    assert [root.service for root in roots] == ["tidegate-client"]
    engine = next(span for span in spans if span.name == "engine")
    assert by_id[engine.parent_id].service == "triton"
    stages = [span for span in spans if span.parent_id == engine.span_id]
    assert {stage.name for stage in stages} == {"queue", "prefill", "decode"}
    assert sum(stage.end_ns - stage.start_ns for stage in stages) == engine.end_ns - engine.start_ns

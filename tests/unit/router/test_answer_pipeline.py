"""One turn through the pipeline, between a caller's sink and a worker that the test plays."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.trace import StatusCode

from router.errors import CallerError, TidegateError, draining, worker_lost
from router.logs import read_fields
from router.model import (
    Failed,
    Finished,
    FinishReason,
    Message,
    Role,
    Sampling,
    Started,
    TextDelta,
    TurnEvent,
    TurnRequest,
    Usage,
    WorkerFinish,
)
from router.text.tokenizer import Tokenizer
from tests.unit.router.fake_worker import POOL
from tests.unit.router.pipeline_bench import ASK, CALL, CALLER_SPAN, TRACE_ID, Bench


@pytest.fixture
def bench(chatml: Path) -> Bench:
    return Bench(Tokenizer.load(chatml))


def kinds(events: Sequence[TurnEvent]) -> list[type]:
    return [type(event) for event in events]


async def test_a_turn_runs_from_started_to_finished(bench: Bench) -> None:
    """The sink gets started, text, usage and the end, with the figures of the turn."""
    async with bench.running():
        bench.worker.feed(bench.ids("he"))
        bench.worker.feed(bench.ids("llo"), WorkerFinish.END_ID, 3)
    prompt = len(bench.worker.asked[0].prompt)
    (entry,) = bench.spending.entries
    assert bench.events[0] == Started("test", "10.0.0.1:8001", prompt, 512, entry.turn)
    assert "".join(event.text for event in bench.events if isinstance(event, TextDelta)) == "hello"
    usage = Usage(prompt, len(bench.ids("he")) + len(bench.ids("llo")), 3)
    assert bench.events[-2:] == [usage, Finished(FinishReason.STOP)]


async def test_the_worker_is_asked_for_what_the_caller_wants(bench: Bench) -> None:
    """Prompt ids, sampling and length reach the worker; of the trace headers, those of the router's own span."""
    sampling = Sampling(temperature=0.0, seed=7)
    async with bench.running(TurnRequest("test", ASK.messages, sampling, max_output_tokens=9)):
        bench.worker.feed([], WorkerFinish.LENGTH)
    asked = bench.worker.asked[0]
    assert asked.prompt == bench.tokenizer.encode_chat([{"role": "user", "content": "hi"}])
    assert (asked.max_new_tokens, asked.sampling) == (9, sampling)
    assert asked.trace_headers["traceparent"].split("-")[1] == TRACE_ID
    assert asked.trace_headers["traceparent"].split("-")[2] != CALLER_SPAN


async def test_a_text_goes_to_the_worker_without_a_template(bench: Bench) -> None:
    """As its own ids and no others."""
    async with bench.running(TurnRequest("", (), text="hi <|im_end|>")):
        bench.worker.feed([], WorkerFinish.LENGTH)
    assert bench.worker.asked[0].prompt == bench.ids("hi <|im_end|>")


async def test_an_answer_is_cut_to_what_the_workers_cache_holds(bench: Bench) -> None:
    """The smaller of the model's context and the worker's KV cache bounds prompt and answer together."""
    async with bench.running(TurnRequest("", ASK.messages, max_output_tokens=100_000)):
        bench.worker.feed([], WorkerFinish.LENGTH)
    asked = bench.worker.asked[0]
    assert len(asked.prompt) + asked.max_new_tokens == POOL


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (TurnRequest("other", ASK.messages), "MODEL_UNKNOWN"),
        (TurnRequest("", []), "FIELD_INVALID"),
        (TurnRequest("", [Message(Role.USER, "x" * POOL)]), "PROMPT_TOO_LONG"),
    ],
)
async def test_what_cannot_be_served_fails_before_a_worker_is_asked(bench: Bench, request_: TurnRequest, reason: str) -> None:
    """The only event is the failure."""
    await bench.run(request_)
    assert kinds(bench.events) == [Failed]
    assert bench.failure().reason == reason
    assert bench.worker.asked == []


async def test_without_a_worker_a_turn_fails_as_unavailable(bench: Bench) -> None:
    """It may be tried again, which the error says."""
    bench.worker.up = False
    bench.worker.owner.on_state()
    await bench.run()
    assert kinds(bench.events) == [Failed]
    assert (bench.failure().reason, bench.failure().retry_after_s) == ("NO_WORKER", 1.0)


async def test_a_stop_ends_the_generation_in_the_engine(bench: Bench) -> None:
    """The worker, which knows nothing of stop texts, is told to end what it would go on with."""
    async with bench.running(TurnRequest("", ASK.messages, stop=["END"])):
        bench.worker.feed(bench.ids("oneEND"))
        assert bench.worker.cancelled == [1]
    assert bench.events[-1] == Finished(FinishReason.STOP, "END")


async def test_a_lost_worker_fails_the_turn_with_its_usage(bench: Bench) -> None:
    """What was answered until then stays, and the turn does not look complete."""
    async with bench.running():
        bench.worker.feed(bench.ids("a"))
        bench.worker.break_down(worker_lost())
    assert kinds(bench.events) == [Started, TextDelta, Usage, Failed]
    assert bench.failure().reason == "WORKER_LOST"


async def test_a_cancelled_turn_leaves_the_engine(bench: Bench) -> None:
    """It finishes as cancelled, its generation is ended, and the cancellation goes on to the task."""
    async with bench.running() as task:
        bench.worker.feed(bench.ids("a"))
        task.cancel()
    assert task.cancelled()
    assert bench.events[-1] == Finished(FinishReason.CANCELLED)
    assert bench.worker.cancelled == [1]


async def test_a_turn_cancelled_with_a_reason_fails_with_it(bench: Bench) -> None:
    """A router that shuts down must not let its turns look as if their callers had left."""
    async with bench.running() as task:
        task.cancel(draining())
    assert task.cancelled()
    assert bench.failure().reason == "DRAINING"
    assert bench.worker.cancelled == [1]


async def test_a_turn_is_cancelled_once(bench: Bench) -> None:
    """A cancel that comes when the turn has ended adds no event."""
    async with bench.running() as task:
        bench.worker.feed([], WorkerFinish.END_ID)
        task.cancel()
    assert bench.events[-1] == Finished(FinishReason.STOP)
    assert kinds(bench.events).count(Finished) == 1


async def test_a_fault_of_ours_fails_as_internal(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the exception under the request's id; the caller hears nothing of it."""
    async with bench.running():
        bench.worker.description = None  # type: ignore[assignment]
        with caplog.at_level(logging.CRITICAL + 1):
            await bench.run()
        assert bench.failure().reason == "INTERNAL"
        bench.worker.feed([], WorkerFinish.END_ID)


async def test_a_turn_is_counted_once_by_its_outcome(bench: Bench) -> None:
    """Turns, tokens and latencies are measured under the model's name; nothing stays active."""
    async with bench.running():
        assert bench.metric("active_turns") == 1
        bench.worker.feed(bench.ids("ab"), WorkerFinish.LENGTH)
    assert bench.metric("active_turns") == 0
    assert bench.metric("turns_total", outcome="length") == 1
    assert bench.metric("prompt_tokens_total") == len(bench.worker.asked[0].prompt)
    assert bench.metric("completion_tokens_total") == len(bench.ids("ab"))
    assert bench.metric("time_to_first_token_seconds_count") == bench.metric("turn_seconds_count") == 1


async def test_failed_turns_are_counted_by_reason(bench: Bench) -> None:
    """A turn that never started counts too, and has no tokens."""
    await bench.run(TurnRequest("", []))
    assert bench.metric("turns_total", outcome="FIELD_INVALID") == 1
    assert bench.metric("active_turns") == 0
    assert bench.metric("prompt_tokens_total") == 0


async def test_a_turn_is_one_span_under_the_callers(bench: Bench) -> None:
    """The chat span has the caller's as parent, a child for each stage, and the turn's figures but none of its text."""
    async with bench.running(TurnRequest("", [Message(Role.USER, "secret")])):
        bench.worker.feed(bench.ids("hidden"), WorkerFinish.END_ID)
    spans = bench.spans()
    chat = spans["chat test"]
    assert chat.parent is not None
    assert f"{chat.parent.span_id:016x}" == CALLER_SPAN
    assert {name for name, span in spans.items() if span.parent == chat.context} == {"tokenize", "queue", "generate"}
    assert chat.attributes is not None
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert chat.attributes["gen_ai.request.model"] == chat.attributes["gen_ai.response.model"] == "test"
    assert chat.attributes["gen_ai.usage.output_tokens"] == len(bench.ids("hidden"))
    assert [event.name for event in chat.events] == ["gen_ai.first_token"]
    everything = "".join(span.to_json() for span in spans.values())
    assert "secret" not in everything
    assert "hidden" not in everything


@pytest.mark.parametrize(("error", "kind"), [(worker_lost(), "WORKER_LOST"), (draining(), "DRAINING")])
async def test_a_failed_turns_span_says_why(bench: Bench, error: TidegateError, kind: str) -> None:
    """Its error type is the reason the caller got, whichever way the error came."""
    async with bench.running() as task:
        if kind == "DRAINING":
            task.cancel(error)
        else:
            bench.worker.break_down(error)
    chat = bench.spans()["chat test"]
    assert chat.attributes is not None
    assert chat.attributes["error.type"] == kind
    assert chat.status.status_code is StatusCode.ERROR


async def test_a_cancelled_turns_span_is_no_error(bench: Bench) -> None:
    """A caller who leaves is nobody's fault."""
    async with bench.running() as task:
        task.cancel()
    chat = bench.spans()["chat test"]
    assert chat.attributes is not None
    assert "error.type" not in chat.attributes
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("cancelled",)
    assert chat.status.status_code is StatusCode.UNSET


async def test_tokens_are_counted_without_a_worker(bench: Bench) -> None:
    """Counting renders the prompt as a turn would, and tells the model's context."""
    bench.worker.up = False
    prompt = bench.tokenizer.encode_chat([{"role": "user", "content": "hi"}])
    assert await bench.pipeline.count_tokens(CALL, ASK) == (len(prompt), bench.tokenizer.context)


async def test_counting_checks_the_messages(bench: Bench) -> None:
    """As a turn does."""
    with pytest.raises(CallerError, match="messages"):
        await bench.pipeline.count_tokens(CALL, TurnRequest("", []))


async def test_a_stream_may_ask_which_model_it_gets(bench: Bench) -> None:
    """An empty name stands for the default; an unknown one is refused."""
    assert bench.pipeline.check_model("") == "test"
    with pytest.raises(CallerError, match="no such model"):
        bench.pipeline.check_model("other")


async def test_each_turn_is_one_line(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """With whose it was, where it ran, how it ended and how long it took; what was refused has what is known."""
    caplog.set_level(logging.INFO, "tidegate.turn")
    async with bench.running():
        bench.worker.feed(bench.ids("h"), WorkerFinish.END_ID)
    bench.worker.up = False
    await bench.run()
    first, second = (read_fields(it) for it in caplog.records if it.name == "tidegate.turn")
    assert (first["request_id"], first["tenant"], first["model"], first["outcome"]) == ("request-1", "acme", "test", "stop")
    assert (first["worker"], first["completion_tokens"]) == ("10.0.0.1:8001", 1)
    assert {"queue_ms", "first_token_ms", "ms"} <= first.keys()
    assert (second["request_id"], second["outcome"], "first_token_ms" in second) == ("request-1", "NO_WORKER", False)

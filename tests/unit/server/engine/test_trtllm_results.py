"""What the GPU engine tells besides tokens: times, load, KV cache events."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from server.engine.base import Finish, Request
from server.engine.trtllm_results import Answer as Reader
from server.engine.trtllm_results import read_load
from tests.fakes.tensorrt_llm.results import (
    CompletionOutput,
    KvCacheMetrics,
    Logprob,
    RequestPerfMetrics,
    TimingMetrics,
)
from tests.unit.server.engine.trtllm import ask, build_engine_folder, build_folder, running, until
from tests.unit.server.stepping import DESCRIPTION

PROMPT = (5, 6, 7)
LONG = tuple(range(200, 300))
STATISTICS = {
    "iterLatencyMS": 12.5,
    "numActiveRequests": 8,
    "numQueuedRequests": 3,
    "kvCacheStats": {"maxNumBlocks": 100, "freeNumBlocks": 40, "tokensPerBlock": 32},
    "inflightBatchingStats": {"numPausedRequests": 1},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_folder(tmp_path)


def take_events(engine: Any, last: int) -> list[Any]:
    """Takes events until the one with this number is there."""
    events: list[Any] = []
    while not events or events[-1]["event_id"] < last:
        engine.step()
        events += engine.take_kv_events()
    return events


class Finished:
    """A RequestOutput whose last response has come, of a version with or without `cached_tokens`."""

    def __init__(self, metrics: RequestPerfMetrics | None, **attributes: int) -> None:
        self.outputs = [CompletionOutput(token_ids=[8], finish_reason="length", request_perf_metrics=metrics)]
        self.finished = True
        vars(self).update(attributes)


def read_timing(response: Any, prompt: tuple[int, ...] = LONG) -> Any:
    return Reader(Request(1, prompt, 10), DESCRIPTION).read(response).timing


def metrics(reused: int = 0, *moments: float) -> RequestPerfMetrics:
    """Moments in seconds: arrival, scheduled, first token, last token."""
    return RequestPerfMetrics(TimingMetrics(*(timedelta(seconds=moment) for moment in moments or (0.0,))), KvCacheMetrics(reused))


def test_times_are_differences_of_the_engines_clock() -> None:
    """The moments themselves are those of a steady clock, here 21 hours after an unknown beginning."""
    timing = read_timing(Finished(metrics(0, 75600.0, 75600.25, 75601.0, 75603.5)))
    assert (timing.queue_ns, timing.prefill_ns, timing.decode_ns) == (250_000_000, 750_000_000, 2_500_000_000)


def test_times_are_never_negative() -> None:
    """A request may be scheduled by a clock that is a little behind that of its arrival."""
    timing = read_timing(Finished(metrics(0, 75600.001, 75600.0, 75601.0, 75601.0)))
    assert (timing.queue_ns, timing.prefill_ns, timing.decode_ns) == (0, 1_000_000_000, 0)


def test_without_metrics_times_are_our_own() -> None:
    """They then hold no time in the queue, and nothing is known of the cache."""
    timing = read_timing(Finished(None))
    assert (timing.queue_ns, timing.cached_tokens) == (0, None)
    assert timing.prefill_ns > 0
    assert timing.decode_ns >= 0


@pytest.mark.parametrize(
    ("response", "cached"),
    [
        (Finished(metrics(3), cached_tokens=70), 70),
        (Finished(metrics(3), cached_tokens=0), 96),
        (Finished(metrics(3)), 96),
        (Finished(metrics(4)), 100),
        (Finished(None, cached_tokens=0), 0),
    ],
)
def test_cached_tokens_come_from_blocks_where_they_are_not_told(response: Any, cached: int) -> None:
    """A TensorRT engine counts blocks only; the last of them may be half of the prompt's."""
    assert read_timing(response).cached_tokens == cached


@pytest.mark.parametrize("entry", [-0.5, {8: Logprob(-0.5)}, {9: Logprob(-0.1), 10: Logprob(-0.5)}])
def test_log_probs_come_in_three_forms(entry: Any) -> None:
    """A number, the sampled token among the likeliest, or only likelier ones."""
    response = Finished(None)
    response.outputs[0].logprobs = [entry]
    assert Reader(Request(1, PROMPT, 10, log_probs=True), DESCRIPTION).read(response).log_probs == [-0.5]


def test_a_prompt_seen_before_is_cached(folder: Path) -> None:
    """But only for those with the same salt."""
    with running(folder) as (engine, _):
        cached = [ask(engine, Request(number, LONG, 1, cache_salt=salt)).timing for number, salt in enumerate(["a", "a", "b", ""], 1)]
    assert [timing and timing.cached_tokens for timing in cached] == [0, 96, 0, 0]


def test_an_engine_folder_counts_cached_blocks(tmp_path: Path) -> None:
    """And that gives the same number."""
    with running(build_engine_folder(tmp_path), release="1.2") as (engine, _):
        cached = [ask(engine, Request(number, LONG, 1)).timing for number in (1, 2)]
    assert [timing and timing.cached_tokens for timing in cached] == [0, 96]


def test_the_load_splits_what_runs_here() -> None:
    """The number of requests is our own; the statistics tell how many of them wait, and what the cache has left."""
    load = read_load(STATISTICS, 10, DESCRIPTION)
    assert (load.active, load.queued, load.free_blocks, load.total_blocks, load.step_us) == (6, 4, 40, 100, 12_500)


def test_old_statistics_cannot_invent_requests() -> None:
    """They stay as they were when the last request ended."""
    assert (read_load(STATISTICS, 2, DESCRIPTION).active, read_load(STATISTICS, 2, DESCRIPTION).queued) == (0, 2)
    idle = read_load(STATISTICS, 0, DESCRIPTION)
    assert (idle.active, idle.queued, idle.free_blocks) == (0, 0, 100)


def test_without_statistics_everything_runs() -> None:
    """Before the first of them."""
    load = read_load({}, 3, DESCRIPTION)
    assert (load.active, load.queued, load.free_blocks, load.step_us) == (3, 0, 100, 0)


def test_the_load_is_the_executors(folder: Path) -> None:
    """Statistics are read by the engine alone, while requests run."""
    with running(folder, max_num_seqs=2) as (engine, llm):
        llm.executor.hold()
        for number in (1, 2, 3):
            engine.submit(Request(number, PROMPT, 100))
        for _ in range(3):
            llm.executor.iterate()
        until(engine, lambda: engine.load().queued == 1)
        load = engine.load()
    assert (load.active, load.queued, load.free_blocks, load.total_blocks, load.tokens_per_block) == (2, 1, 61, 64, 32)
    assert load.step_us == 12_500


@pytest.mark.parametrize("release", ["1.2", "1.3"])
def test_events_are_the_librarys(folder: Path, release: str) -> None:
    """Oldest first and each once, as its serializer gives them."""
    with running(folder, release=release, event_buffer_max_size=100) as (engine, llm):
        ask(engine, Request(1, LONG, 1))
        ask(engine, Request(2, LONG, 1))
        llm.executor.cache.evict()
        events = take_events(engine, 6)
    # The engine's own first request stores a block as well.
    assert [event["data"]["type"] for event in events] == ["created", *["stored"] * 4, "updated", "removed"]
    assert [event["event_id"] for event in events] == list(range(7))
    (block,) = events[2]["data"]["blocks"]
    assert (events[2]["data"]["parent_hash"], [token["token_id"] for token in block["tokens"]]) == (None, list(LONG[:32]))


def test_events_that_are_not_taken_do_not_pile_up(folder: Path) -> None:
    """The oldest go, which the numbers of the others show."""
    with running(folder, event_buffer_max_size=2) as (engine, _):
        ask(engine, Request(1, [5] * 480, 1))  # fifteen blocks, and one of the engine's own
        assert len(take_events(engine, 16)) < 17


def test_without_a_buffer_there_are_no_events(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The library is not even asked."""
    with running(folder) as (engine, _):
        assert ask(engine, Request(1, LONG, 1)).finish is Finish.LENGTH
        assert engine.take_kv_events() == []
    assert caplog.messages == []

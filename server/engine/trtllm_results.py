"""What TensorRT-LLM gives back: responses read as outputs, and iteration statistics as a load.

A RequestOutput is one object that the library changes with every response. `token_ids` grows; what is new since the last look is counted
here, so several responses handled at once lose nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from server.engine.base import Description, Finish, Load, Output, Request, Timing

_FINISHES = {"length": Finish.LENGTH, "timeout": Finish.TIMED_OUT, "cancelled": Finish.CANCELLED}


class Answer:
    """One request's answer as it comes; belongs to the thread that reads the responses."""

    def __init__(self, request: Request, engine: Description) -> None:
        self._request = request
        self._end_ids = frozenset(request.end_ids or engine.end_ids)
        self._tokens_per_block = engine.tokens_per_block
        self._arrived_ns = time.time_ns()
        self._submitted = time.monotonic_ns()
        self._first_token = 0
        self._seen = 0
        self._ended = False

    def read(self, response: Any) -> Output:
        """What is new in the library's RequestOutput."""
        completion = response.outputs[0]
        start, self._seen = self._seen, len(completion.token_ids)
        tokens = self._cut_end(completion.token_ids[start:])
        if tokens:
            self._first_token = self._first_token or time.monotonic_ns()
        output = Output(self._request.number, tokens, self._read_finish(response.finished, completion))
        if self._request.log_probs:
            output.log_probs = [_read_log_prob(*pair) for pair in zip(completion.logprobs[start:], tokens, strict=False)]
        if output.finish is not Finish.RUNNING:
            output.timing = self._read_timing(response, completion.request_perf_metrics)
        if output.finish is Finish.FAILED:
            output.error = "the engine ended this request without a reason"
        return output

    def fail(self, error: Exception) -> Output:
        """The end of a request whose response was an error."""
        return Output(self._request.number, [], Finish.FAILED, timing=self._timing(None, None), error=describe_error(error))

    def _cut_end(self, tokens: list[int]) -> list[int]:
        """Drops an end token and what follows: no part of an answer. The PyTorch runtime leaves it in, TensorRT engines do not."""
        for at, token in enumerate(tokens):
            if self._ended or token in self._end_ids:
                self._ended = True
                return tokens[:at]
        return tokens

    def _read_finish(self, finished: bool, completion: Any) -> Finish:
        reason = completion.finish_reason
        if not finished:
            return Finish.RUNNING
        if reason == "stop":
            return Finish.STOP_WORDS if completion.stop_reason in self._request.stop_ids else Finish.END_ID
        # The library looks at the length before the stop words, which further end ids are to it.
        return Finish.END_ID if reason == "length" and self._ended else _FINISHES.get(reason, Finish.FAILED)

    def _read_timing(self, response: Any, metrics: Any) -> Timing:
        cached = getattr(response, "cached_tokens", None)
        if not cached and metrics is not None:  # TensorRT engines count blocks only, and leave the other at zero
            cached = min(len(self._request.prompt), metrics.kv_cache_metrics.num_reused_blocks * self._tokens_per_block)
        return self._timing(_read_spans(metrics), cached)

    def _timing(self, spans: list[int] | None, cached: int | None) -> Timing:
        now = time.monotonic_ns()
        first = self._first_token or now
        queue, prefill, decode = spans or (0, first - self._submitted, now - first)
        return Timing(self._arrived_ns, queue, prefill, decode, cached)


def _read_log_prob(entry: Any, token: int) -> float:
    """From a dict of the likeliest tokens, or a number. Old versions omit a sampled token that is not among them: the least bounds it."""
    if isinstance(entry, float):
        return entry
    found = entry.get(token) or min(entry.values(), key=lambda one: one.logprob)
    return float(found.logprob)


def _read_spans(metrics: Any) -> list[int] | None:
    """Nanoseconds in the queue, of prefill and of decoding. The moments are of a steady clock: only their differences mean something."""
    times = getattr(metrics, "timing_metrics", None)
    if not times or not times.first_token_time:
        return None
    moments = (times.arrival_time, times.first_scheduled_time, times.first_token_time, times.last_token_time)
    return [max(0, round((later - earlier).total_seconds() * 1e9)) for earlier, later in pairwise(moments)]


def describe_error(error: Exception) -> str:
    """An error of the library in one short line: some carry a stack trace."""
    return f"tensorrt_llm: {str(error).partition(chr(10))[0][:200] or type(error).__name__}"


def read_load(statistics: Mapping[str, Any], running: int, engine: Description) -> Load:
    """The load from the last iteration's statistics and the requests that run here.

    Statistics are up to a second old, and stay as they are once nothing runs; the number of requests is exact.
    """
    blocks = statistics.get("kvCacheStats") or {}
    batch = statistics.get("inflightBatchingStats") or {}
    queued = min(running, statistics.get("numQueuedRequests", 0) + batch.get("numPausedRequests", 0))
    return Load(
        active=running - queued,
        queued=queued,
        free_blocks=blocks.get("freeNumBlocks", engine.total_blocks) if running else engine.total_blocks,
        total_blocks=engine.total_blocks,
        tokens_per_block=engine.tokens_per_block,
        step_us=round(statistics.get("iterLatencyMS", 0) * 1000),
    )

"""The fake executor: in-flight batching over scripts, in a thread that stands for the worker processes and for the dispatcher."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from .arguments import BaseLlmArgs, SamplingParams
from .cache import KvCache
from .results import AsyncQueue, KvCacheMetrics, RequestOutput, RequestPerfMetrics, Response, TimingMetrics, notify_all
from .script import Action, Die, Fail, Finish, Make, Script

ITERATION_S = 0.001
TOO_LONG = (
    "Executor failed process requestId {} due to the following error: Encountered an error when fetching new request: "
    "Prompt length ({}) exceeds maximum input length ({}). Set log level to info and check TRTGptModel logs for how it is set\n"
    "1  0x7f0c libtensorrt_llm.so(+0x8d7a)"
)


@dataclass(slots=True)
class _Request:
    """A request in the executor. `keeps_end` says whether the end token stays in the output."""

    output: RequestOutput
    prompt: list[int]
    sampling: SamplingParams
    salt: object
    actions: Iterator[Action]
    room: int
    keeps_end: bool
    metrics: RequestPerfMetrics
    made: int = 0
    response: Response | None = field(default=None)

    def play(self) -> None:
        """Plays one action; sets the response."""
        self.metrics.timing_metrics.first_scheduled_time = self.metrics.timing_metrics.first_scheduled_time or _steady()
        match next(self.actions, Finish("length")):
            case Make(tokens):
                self.response = self._sample(list(tokens)) if tokens else None
            case Fail(message):
                self.response = Response(error=message, is_final=True)
            case Finish(reason):
                self.end([], reason)
            case Die(error):
                raise _ExecutorDied(error)

    def end(self, tokens: list[int], reason: str | None, stop_words: bool = False) -> Response:
        """The last response."""
        self.response = Response(tokens, reason, is_final=True, stop_words=stop_words, metrics=self.metrics)
        return self.response

    def _sample(self, tokens: list[int]) -> Response:
        """Takes tokens until one ends the request. The order of the three checks is that of the library's sampler."""
        times = self.metrics.timing_metrics
        times.first_token_time = times.first_token_time or _steady()
        times.last_token_time = _steady()
        for count, token in enumerate(tokens, start=1):
            self.made += 1
            if token == self.sampling.end_id:
                return self.end(tokens[: count if self.keeps_end else count - 1], "stop")
            if self.made >= min(self.sampling.max_tokens, self.room):
                return self.end(tokens[:count], "length")
            if token in (self.sampling.stop_token_ids or ()):
                return self.end(tokens[:count], "stop", stop_words=True)
        return Response(tokens)


class _ExecutorDied(Exception):
    """Carries what a background thread reports, if it does."""


class Executor:
    """Runs requests until it is shut down or dies. `hold()` and `iterate()` let a test play iterations one by one."""

    def __init__(self, args: BaseLlmArgs, script: Script, keeps_end: bool) -> None:
        self.cache = KvCache(args.kv_cache_config)
        self.statistics: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.is_shutdown = False
        self.aborted: list[int] = []
        self._args = args
        self._script = script
        self._keeps_end = keeps_end
        self._requests: dict[int, _Request] = {}
        self._last_id = 1
        self._iterations = 0
        self._died = False
        self._lock = threading.RLock()
        self._going = threading.Event()
        self._going.set()
        self._socket_user: int | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def submit(self, prompt: list[int], sampling: SamplingParams, salt: object) -> RequestOutput:
        """Takes a request; it runs from the next iteration on."""
        self._use_socket()
        with self._lock:
            self._last_id += 1
            output = RequestOutput(self._last_id, sampling, self)
            room = (self._args.max_seq_len or 4096) - len(prompt)
            metrics = RequestPerfMetrics(TimingMetrics(_steady()), KvCacheMetrics(self.cache.count_reused(salt, prompt)))
            actions = iter(self._script(prompt))
            if len(prompt) > (self._args.max_input_len or 1024):
                actions = iter([Fail(TOO_LONG.format(self._last_id, len(prompt), self._args.max_input_len))])
            self._requests[self._last_id] = _Request(output, prompt, sampling, salt, actions, room, self._keeps_end, metrics)
        return output

    def abort_request(self, request_id: int) -> None:
        """Ends a request with the next iteration; one that has ended is ignored."""
        self._use_socket()
        with self._lock:
            self.aborted.append(request_id)
            if request_id in self._requests:
                self._requests[request_id].actions = iter([Finish("cancelled")])

    def shutdown(self) -> None:
        """Ends the executor."""
        self.is_shutdown = True

    def hold(self) -> None:
        """Stops before the next iteration."""
        self._going.clear()

    def resume(self) -> None:
        """Goes on by itself."""
        self._going.set()

    def iterate(self) -> None:
        """One iteration: every active request plays an action, and all responses go out in one wake-up."""
        with self._lock:
            active = list(self._requests.values())[: self._args.max_batch_size]
            try:
                for request in active:
                    request.response = None
                    request.play()
            except _ExecutorDied as death:
                self._die(active, death.args[0])
                return
            self._deliver(active)
            self._count(len(active))

    def fetch(self, source: queue.SimpleQueue[str], timeout: float) -> list[str]:
        """Takes all there is, waiting for something."""
        found: list[str] = []
        try:
            found.append(source.get(timeout=timeout))
            while True:
                found.append(source.get_nowait())
        except queue.Empty:
            return found

    def _run(self) -> None:
        while not self.is_shutdown:
            time.sleep(ITERATION_S)
            if self._going.wait(0.02) and self._requests and not self._died:
                self.iterate()

    def _deliver(self, requests: list[_Request]) -> None:
        queues: list[AsyncQueue] = []
        for request in requests:
            if request.response is None:
                continue
            if request.response.is_final:
                self._end(request)
            assert request.output.aqueue is not None
            request.output.aqueue.put_silently(request.response)
            queues.append(request.output.aqueue)
        if queues:
            notify_all(queues)

    def _end(self, request: _Request) -> None:
        del self._requests[request.output.request_id]
        self.cache.store(request.salt, request.prompt)
        if self._keeps_end:  # the PyTorch runtime tells exactly, the other counts blocks only
            reused = request.metrics.kv_cache_metrics.num_reused_blocks
            request.output.cached_tokens = min(reused * self._args.kv_cache_config.tokens_per_block, len(request.prompt) - 1)

    def _die(self, active: list[_Request], error: Exception | None) -> None:
        self._died = True
        if error is not None:  # told by the first response only; a killed process tells nothing
            active[0].response = Response(error=error)
            self._deliver(active[:1])

    def _count(self, active: int) -> None:
        self._iterations += 1
        used = sum(-(-(len(one.prompt) + one.made) // self._args.kv_cache_config.tokens_per_block) for one in self._requests.values())
        total = self.cache.total_blocks
        statistics = {
            "iter": self._iterations,
            "iterLatencyMS": 12.5,
            "numActiveRequests": active,
            "numQueuedRequests": max(0, len(self._requests) - active),
            "kvCacheStats": {"maxNumBlocks": total, "freeNumBlocks": total - used, "usedNumBlocks": used, "tokensPerBlock": 32},
            "inflightBatchingStats": {"numScheduledRequests": active, "numPausedRequests": 0},
        }
        if getattr(self._args, "enable_iter_perf_stats", True):
            self.statistics.put(json.dumps(statistics))

    def _use_socket(self) -> None:
        """The library's sockets are not thread-safe."""
        self._socket_user = self._socket_user or threading.get_ident()
        assert self._socket_user == threading.get_ident(), "this socket belongs to another thread"


def _steady() -> timedelta:
    return timedelta(seconds=75_600, microseconds=time.monotonic_ns() // 1000)

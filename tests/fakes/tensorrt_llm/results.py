"""How responses and statistics reach the caller: queues bound to the event loop in which the request was made."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from .arguments import SamplingParams


class RequestError(RuntimeError):
    """A request failed; the executor goes on."""


class CppExecutorError(RuntimeError):
    """The executor failed."""


@dataclass(slots=True)
class Logprob:
    """The log probability of a token, and its rank among all."""

    logprob: float
    rank: int | None = None


@dataclass(slots=True)
class TimingMetrics:
    """Moments of a steady clock."""

    arrival_time: timedelta
    first_scheduled_time: timedelta = timedelta()
    first_token_time: timedelta = timedelta()
    last_token_time: timedelta = timedelta()


@dataclass(slots=True)
class KvCacheMetrics:
    """Blocks of one request."""

    num_reused_blocks: int = 0


@dataclass(slots=True)
class RequestPerfMetrics:
    """What `return_perf_metrics` adds to the last response."""

    timing_metrics: TimingMetrics
    kv_cache_metrics: KvCacheMetrics = field(default_factory=KvCacheMetrics)


@dataclass(slots=True)
class Response:
    """What the executor says about a request after an iteration. `tokens` are new. An error is the request's when it is a string."""

    tokens: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    is_final: bool = False
    stop_words: bool = False
    metrics: RequestPerfMetrics | None = None
    error: str | Exception | None = None


@dataclass(slots=True)
class CompletionOutput:
    """One answer; `token_ids` and `logprobs` are cumulative."""

    index: int = 0
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, Logprob]] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    request_perf_metrics: RequestPerfMetrics | None = None


class AsyncQueue:
    """Filled by any thread, read by one coroutine of the loop that made it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._items: deque[Any] = deque()
        self._event = asyncio.Event()

    def put_silently(self, item: Any) -> None:
        """Without waking the reader; `notify` does that, for many queues at once."""
        self._items.append(item)

    def notify(self) -> None:
        """In the loop's thread."""
        if self._items:
            self._event.set()

    async def get(self, wait_s: float | None = None) -> Any:
        """The next item. Raises TimeoutError."""
        while not self._items:
            await asyncio.wait_for(self._event.wait(), wait_s)
        item = self._items.popleft()
        if not self._items:
            self._event.clear()
        return item


def notify_all(queues: Sequence[AsyncQueue]) -> None:
    """Wakes their loop once for all of them, from another thread. A loop that is gone needs no news."""

    def notify() -> None:
        for one in queues:
            one.notify()

    with contextlib.suppress(RuntimeError):
        queues[0].loop.call_soon_threadsafe(notify)


class RequestOutput:
    """The handle of a request. Iterating it handles one response after another, and gives itself every time."""

    def __init__(self, request_id: int, sampling: SamplingParams, executor: Any) -> None:
        self.request_id = request_id
        self.outputs = [CompletionOutput()]
        self.finished = False
        self.cached_tokens = 0
        self.aqueue: AsyncQueue | None = AsyncQueue() if _has_event_loop() else None
        self._sampling = sampling
        self._executor = executor

    def abort(self) -> None:
        """Asks the executor to end the request; it answers that with a last response."""
        self._executor.abort_request(self.request_id)

    def __aiter__(self) -> RequestOutput:
        return self

    async def __anext__(self) -> RequestOutput:
        if self.finished:
            raise StopAsyncIteration
        assert self.aqueue is not None, "The asyncio event loop was not present during initialization"
        self._handle(await self.aqueue.get())
        return self

    def _handle(self, response: Response) -> None:
        if isinstance(response.error, str):
            raise RequestError(response.error)
        if response.error is not None:
            self._executor.shutdown()
            raise response.error
        completion = self.outputs[0]
        completion.token_ids.extend(response.tokens)
        if self._sampling.logprobs:
            completion.logprobs.extend({token: Logprob(-token / 1000, 1), 0: Logprob(-9.0, 2)} for token in response.tokens)
        self.finished = response.is_final
        completion.finish_reason = response.finish_reason
        completion.request_perf_metrics = response.metrics
        if response.stop_words:
            self._stop_at_word(completion)

    def _stop_at_word(self, completion: CompletionOutput) -> None:
        completion.stop_reason = completion.token_ids[-1]
        if not self._sampling.include_stop_str_in_output:
            completion.token_ids = completion.token_ids[:-1]


class IterationResult:
    """Statistics or events, JSON in a queue. Ends when nothing came for `timeout`, and then stays ended until a request is made."""

    def __init__(self) -> None:
        self.done = False
        self.timeout = 2.0
        self.aqueue = AsyncQueue()
        self._reading = False

    def fill(self, fetch: Callable[[float], list[str]], timeout: float) -> IterationResult:
        """As 1.2.1 has it: the call itself fetches, and waits for that."""
        assert not _has_event_loop(), "this call waits, and would stop the event loop"
        self.done, self.timeout = False, timeout
        for text in fetch(timeout):
            self.aqueue.put_silently(text)
        notify_all([self.aqueue])
        return self

    def __aiter__(self) -> IterationResult:
        return self

    async def __anext__(self) -> dict[str, Any]:
        if self.done:
            raise StopAsyncIteration
        assert not self._reading, "two readers share what each should have whole"
        self._reading = True
        try:
            entry: dict[str, Any] = json.loads(await self.aqueue.get(self.timeout))
        except TimeoutError:
            self.done = True
            raise StopAsyncIteration from None
        finally:
            self._reading = False
        return entry


def _has_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

"""The event loop between TensorRT-LLM, which calls back, and the engine port, which is asked.

The library's responses reach the asyncio loop in which `generate_async` was called: all responses of one engine iteration come in one
wake-up, and every request's task reads its own. So there is a loop of our own, in a thread of its own. The first task that has news asks
the loop to hand the burst over after the tasks that are ready now: an iteration of the engine is one item in the queue, and one step of
the port. `generate_async` and `abort` are called in this thread only, since the socket behind them is not thread-safe.

Iteration statistics and KV cache events are queues that reading empties. Each has one reader, a task here.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from server.engine.base import Finish, Output
from server.engine.trtllm_results import Answer, describe_error

SUBMIT_S = 10.0
CLOSE_S = 30.0
POLL_S = 0.5
"""How long one read of statistics or events waits for more."""

log = logging.getLogger("tidegate.tensorrt_llm")


class ResponseLoop:
    """Runs requests in the library and gathers what comes back. The public methods are for one other thread.

    `request_error` is the library's exception for a request that failed alone; any other means that the executor is dead, and `death` says
    so then. `events` bounds the KV cache events kept; 0 reads none.
    """

    def __init__(self, llm: Any, request_error: type[Exception], events: int) -> None:
        self.death: str | None = None
        self.statistics: Mapping[str, Any] = {}
        self._llm = llm
        self._request_error = request_error
        self._events: deque[Mapping[str, object]] = deque(maxlen=events)
        self._bursts: queue.SimpleQueue[list[Output]] = queue.SimpleQueue()
        self._burst: list[Output] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._heard = time.monotonic()
        self._has_statistics = threading.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="tensorrt_llm", daemon=True)
        self._thread.start()
        self._started.wait()

    # For the engine's thread.

    def start(self, answer: Answer, arguments: Mapping[str, Any]) -> Any:
        """Calls `generate_async` and returns its handle. Raises what the library raises, and TimeoutError when the loop hangs in it."""
        return asyncio.run_coroutine_threadsafe(self._start(answer, arguments), self._loop).result(SUBMIT_S)

    def abort(self, response: Any) -> None:
        """Ends a request; what it still brings is to be ignored."""
        self._loop.call_soon_threadsafe(response.abort)

    def take(self, timeout_s: float) -> list[Output]:
        """The outputs of the next iteration, and of those after it that are here already; empty when none comes in time."""
        outputs: list[Output] = []
        try:
            outputs += self._bursts.get(timeout=timeout_s)
            while True:
                outputs += self._bursts.get_nowait()
        except queue.Empty:
            return outputs

    def take_events(self) -> list[Mapping[str, object]]:
        """KV cache events since the last call. The oldest are dropped when there are too many, which their `event_id` shows."""
        return [self._events.popleft() for _ in range(len(self._events))]

    def watch(self) -> None:
        """Begins to read statistics and events. The library has none before the first request."""
        self._loop.call_soon_threadsafe(self._watch)

    def wait_for_statistics(self, timeout_s: float) -> Mapping[str, Any]:
        """The latest statistics, or none when none come in time."""
        self._has_statistics.wait(timeout_s)
        return self.statistics

    def listen(self) -> None:
        """Starts the silence anew: so far nothing was to be heard."""
        self._heard = time.monotonic()

    def silent_s(self) -> float:
        """Seconds since the executor was last heard of."""
        return time.monotonic() - self._heard

    def die(self, error: BaseException) -> None:
        """Takes the executor for dead."""
        log.error("the executor is dead", exc_info=error)
        self.death = f"tensorrt_llm failed: {type(error).__name__}"

    def close(self) -> None:
        """Ends the loop and everything in it; leaves it behind when it hangs in the library."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(CLOSE_S)

    # In the loop's thread.

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._started.set()
        await self._stopping.wait()

    async def _start(self, answer: Answer, arguments: Mapping[str, Any]) -> Any:
        response = self._llm.generate_async(**arguments)
        self._keep(self._follow(answer, response))
        return response

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs a task; the loop itself holds tasks only weakly."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, answer: Answer, response: Any) -> None:
        try:
            async for _ in response:
                self._post(answer.read(response))
        except self._request_error as error:
            self._post(answer.fail(error))
        except Exception as error:
            self.die(error)

    def _post(self, output: Output) -> None:
        self._heard = time.monotonic()
        if not output.tokens and output.finish is Finish.RUNNING:
            return
        if not self._burst:
            self._loop.call_soon(self._hand_over)
        self._burst.append(output)

    def _hand_over(self) -> None:
        burst, self._burst = self._burst, []
        self._bursts.put(burst)

    def _watch(self) -> None:
        self._keep(self._drain(self._llm.get_stats_async, self._note_statistics))
        if self._events.maxlen:
            self._keep(self._drain(self._llm.get_kv_cache_events_async, self._events.append))

    def _note_statistics(self, statistics: Mapping[str, Any]) -> None:
        self._heard = time.monotonic()
        self.statistics = statistics
        self._has_statistics.set()

    async def _drain(self, read: Callable[[float], Any], take: Callable[[Any], None]) -> None:
        """Reads a queue of the library for ever. A dead executor shows in its requests; here it only ends the reading."""
        try:
            while True:
                # The call may wait itself, depending on the version, and the loop must not.
                async for entry in await asyncio.to_thread(read, POLL_S):
                    take(entry)
                await asyncio.sleep(POLL_S / 10)  # when nothing runs it ends at once
        except Exception as error:
            log.warning("no more statistics or events: %s", describe_error(error))

"""Plays a workload against a target and keeps a record of each request.

Open loop: requests are sent when they are due, whatever the server does; a moment is counted from when the request was due, so waiting that
a slow server causes is never left out (coordinated omission). Closed loop: each of a fixed number of callers sends its next request when
its last one has ended; after one that failed or was refused it waits, as clients do, as long as the server says, or longer each time. Such
callers slow down with the server, so a closed loop cannot show overload, and its results say so.

One task per conversation, none per token. A single watch looks after all that run: a request that hears nothing for too long, or takes too
long altogether, is given up, and that is its outcome.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from loadtest.histogram import Histogram
from loadtest.lag import LagMeter
from loadtest.record import Outcome, Record
from loadtest.request import Message, Request
from loadtest.targets import Target

WATCH_S = 0.1
PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
AHEAD, AHEAD_S = 64, 0.02
"""Requests are made so many ahead, and only while the next is not due for so many seconds: long prompts take milliseconds to make."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the harness waits for a server, in seconds."""

    stall_s: float = 30.0
    """Without any sign of life on a request, news of its place in a queue included."""
    request_s: float = 600.0
    """For the whole of a request, from when it was due."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has ended; moments are seconds of `time.perf_counter()`.

    Figures are of what was due between `begin` and `end`; before it connections and caches warm up. What still ran then was waited for.
    """

    records: list[Record]
    begin: float
    end: float
    concurrency: int | None
    """Callers of a closed loop; None for an open one."""
    skipped: int
    """Follow-ups that were never sent because the answer before them failed."""
    lag: Histogram


@dataclass(slots=True)
class Progress:
    """A run under way."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    tokens: int = 0


class Runner:
    """Runs one workload; use it once."""

    def __init__(self, target: Target, patience: Patience, *, warm_up_s: float = 0.0) -> None:
        self.progress = Progress()
        self._target = target
        self._patience = patience
        self._warm_up_s = warm_up_s
        self._records: list[Record] = []
        self._running: dict[int, tuple[Record, asyncio.Task[None]]] = {}
        self._conversations: set[asyncio.Task[Record]] = set()
        self._promised = 0
        self._fault: BaseException | None = None

    @property
    def running(self) -> int:
        """Requests that have not ended."""
        return len(self._running)

    async def play_open(self, requests: Iterable[Request], seconds: float | None = None) -> Run:
        """Sends each request when it is due and returns when all have ended. Figures are of the first `seconds`, else of the whole run."""
        source = iter(requests)
        ahead = deque(islice(source, AHEAD))
        began = time.perf_counter()
        return await self._play(began, seconds, None, self._send_when_due(source, ahead, began))

    async def play_closed(self, requests: Iterable[Request], concurrency: int, seconds: float) -> Run:
        """So many callers take the requests one after the other, for so many seconds; when a request is due is not looked at."""
        began = time.perf_counter()
        source = iter(requests)

        async def call() -> None:
            pause = 0.0
            while time.perf_counter() + pause < began + seconds and (request := next(source, None)) is not None:
                await asyncio.sleep(pause)
                conversation = self._launch(request, time.perf_counter())
                await asyncio.wait({conversation})
                pause = pause_after(conversation, pause)

        return await self._play(began, seconds, concurrency, _run_all(call() for _ in range(concurrency)))

    async def _play(self, began: float, seconds: float | None, concurrency: int | None, sending: Coroutine[Any, Any, None]) -> Run:
        meter = LagMeter()
        watch = asyncio.create_task(self._watch())
        try:
            async with meter.measuring():
                await sending
                while self._conversations:
                    await asyncio.wait(self._conversations)
        finally:
            for task in (watch, *self._conversations):
                task.cancel()
            await asyncio.wait({watch, *self._conversations})
        if self._fault is not None:
            raise self._fault
        end = time.perf_counter() if seconds is None else began + seconds
        return Run(self._records, began + self._warm_up_s, end, concurrency, self._promised - len(self._records), meter.lags)

    async def _send_when_due(self, source: Iterator[Request], ahead: deque[Request], began: float) -> None:
        while ahead:
            request = ahead.popleft()
            due = began + request.at
            while len(ahead) < AHEAD and time.perf_counter() < due - AHEAD_S and (more := next(source, None)) is not None:
                ahead.append(more)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self._launch(request, due)
            if not ahead:
                ahead.extend(islice(source, 1))

    def _launch(self, request: Request, due: float) -> asyncio.Task[Record]:
        self._promised += sum(1 for _ in request.with_follow_ups())
        task = asyncio.create_task(self._converse(request, due))
        self._conversations.add(task)
        task.add_done_callback(self._close)
        return task

    async def _converse(self, request: Request, due: float) -> Record:
        """A request and those that follow it; gives the record of the last that was sent."""
        while True:
            record = await self._ask(request, due)
            if request.follow_up is None or record.outcome is not Outcome.COMPLETED:
                return record
            history = (*request.messages, Message("assistant", record.answer))
            due = time.perf_counter() + request.follow_up.at
            request = replace(request.follow_up, messages=history + request.follow_up.messages)
            await asyncio.sleep(request.at)

    async def _ask(self, request: Request, due: float) -> Record:
        record = Record(request.number, request.tenant, due, text=[] if request.follow_up else None)
        self._records.append(record)
        task = asyncio.current_task()
        assert task is not None, "requests are asked by tasks"
        self._running[record.number] = record, task
        try:
            await self._target.run(request, record)
        finally:
            del self._running[record.number]
            self.progress.outcomes[record.outcome] += 1
            self.progress.tokens += record.tokens
        return record

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            now = time.perf_counter()
            for record, task in list(self._running.values()):
                if record.outcome is Outcome.RUNNING and self._gives_up(record, now):
                    task.cancel()

    def _gives_up(self, record: Record, now: float) -> bool:
        if now - record.due > self._patience.request_s:
            record.fail(now, "OVERDUE", outcome=Outcome.OVERDUE)
        elif now - max(record.heard, record.due) > self._patience.stall_s:
            record.fail(now, "NO_NEXT_TOKEN" if record.arrivals else "NO_FIRST_TOKEN", outcome=Outcome.STALLED)
        return record.outcome is not Outcome.RUNNING

    def _close(self, conversation: asyncio.Task[Record]) -> None:
        self._conversations.discard(conversation)
        if not conversation.cancelled():
            self._fault = conversation.exception() or self._fault


def pause_after(conversation: asyncio.Task[Record], last_pause: float) -> float:
    """How long a caller of a closed loop waits before its next request. One that was given up has waited for long already."""
    if conversation.cancelled() or conversation.exception() or conversation.result().outcome is Outcome.COMPLETED:
        return 0.0
    return conversation.result().retry_after_s or min(LONGEST_PAUSE_S, max(PAUSE_S, 2 * last_pause))


async def _run_all(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*calls)

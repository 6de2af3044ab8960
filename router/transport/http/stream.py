"""An answer as server-sent events, written once per engine step.

Theory of operation. The turns' sinks are called from the worker's frame loop and must not wait. A sink only notes what comes. While the
caller reads, its stream is one of those that the step's end (steps.py) writes straight into their connections' buffers: no task wakes for a
token. When a buffer is full, and before the response has begun, the request's task sends all that has gathered as soon as the caller takes
more. Text of a choice that came meanwhile is one chunk, so the memory of a caller that does not read is bounded by the tokens of its turns.
The task also sends whatever is no choice's: places in the queue, comments that keep a quiet stream open, and the end.

The status is held back until there is content, so that a refusal has a status of its own, but no longer than `hold_s`. From then on a fault
is one event with an `error`, after which the body ends without `[DONE]`: a cut answer never looks like a whole one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from router.errors import TidegateError, internal
from router.model import Degraded, Failed, Finished, Logprobs, Queued, Started, TextDelta, TurnEvent, Usage
from router.tools import ToolCallDelta
from router.transport.http.choice import Choice
from router.transport.http.chunks import DONE, KEEP_ALIVE, ChunkWriter, write_event, write_place
from router.transport.http.errors import to_object
from router.transport.http.exchange import Connection, Exchange
from router.transport.http.forms import FINISH_REASONS, add_usage
from router.transport.http.headers import degraded_headers, started_headers
from router.transport.http.steps import Steps


class EventStream:
    """The events of one response; `put` is the turns' sink."""

    __slots__ = (
        "_choices",
        "_degraded",
        "_direct",
        "_failure",
        "_is_ending_step",
        "_is_quiet",
        "_news",
        "_next_beat",
        "_open_writer",
        "_place",
        "_running",
        "_started",
        "_steps",
        "_usage",
        "_with_usage",
        "_writer",
    )

    def __init__(self, choices: int, open_writer: Callable[[Started], ChunkWriter], steps: Steps, *, with_usage: bool) -> None:
        """`open_writer` makes the writer when the first turn has started."""
        self._choices = [Choice(index) for index in range(choices)]
        self._running = choices
        self._open_writer = open_writer
        self._writer: ChunkWriter | None = None
        self._with_usage = with_usage
        self._usage = Usage(0, 0)
        self._started: Started | None = None
        self._degraded: Degraded | None = None
        self._place: Queued | None = None
        self._failure: TidegateError | None = None
        self._direct: Connection | None = None
        """Where the step's end may write; None while the task sends, whose pieces come first."""
        self._steps = steps
        self._is_ending_step = False
        self._is_quiet = False
        self._news = asyncio.Event()

    def put(self, index: int, events: Sequence[TurnEvent]) -> None:
        """Takes events of a choice's turn."""
        choice = self._choices[index]
        for event in events:
            if isinstance(event, TextDelta):
                choice.texts.append(event.text)
            else:
                self._take(choice, event)
        if self._direct is None:
            self._news.set()
        elif not self._is_ending_step:
            self._is_ending_step = True
            self._steps.add(self)

    def end_step(self) -> tuple[Connection, bytes] | None:
        """What the step has brought, if it can be written now; the rest is for the task."""
        self._is_ending_step = False
        direct, writer = self._direct, self._writer
        news = [choice for choice in self._choices if choice.has_news]
        if news and direct and writer and self._running and direct.is_ready:
            self._is_quiet = False
            return direct, b"".join([choice.take_chunks(writer) for choice in news])
        self._news.set()
        return None

    async def send(self, exchange: Exchange, *, hold_s: float, heartbeat_s: float) -> None:
        """Sends it all. Raises the error of a turn that failed before anything was sent."""
        with suppress(TimeoutError):
            async with asyncio.timeout(hold_s):
                await self._wait_content()
        if self._failure is not None:
            raise self._failure
        await exchange.start_events(started_headers(self._started) + degraded_headers(self._degraded))
        self._beat(heartbeat_s)
        try:
            await self._send_body(exchange)
        finally:
            self._direct = None
            self._next_beat.cancel()

    async def _send_body(self, exchange: Exchange) -> None:
        while True:
            self._direct = None
            self._news.clear()
            is_last = self._failure is not None or not self._running
            await exchange.send(self._gather(), more=not is_last)
            if is_last:
                return
            self._direct = exchange.connection
            await self._news.wait()

    async def _wait_content(self) -> None:
        while self._failure is None and not any(choice.has_news for choice in self._choices):
            self._news.clear()
            await self._news.wait()

    def _take(self, choice: Choice, event: TurnEvent) -> None:
        match event:
            case Queued():
                self._place = event
            case Degraded():
                self._degraded = event
            case Started():
                self._started, self._place = event, None
                self._writer = self._writer or self._open_writer(event)
            case ToolCallDelta():
                choice.calls.append(event)
            case Logprobs(tokens):
                choice.logprobs += tokens
            case Usage():
                self._usage = add_usage(self._usage, event)
            case Finished(reason):
                choice.finish = FINISH_REASONS.get(reason, "")
                self._end(choice, None if choice.finish else internal())
            case Failed(error):
                self._end(choice, error)

    def _end(self, choice: Choice, failure: TidegateError | None) -> None:
        if not choice.has_ended:
            choice.has_ended = True
            self._failure = self._failure or failure
            self._running = 0 if self._failure else self._running - 1

    def _gather(self) -> bytes:
        """All that is new."""
        pieces = [] if self._place is None else [write_place(self._place)]
        self._place = None
        if self._writer is not None:
            pieces += [choice.take_chunks(self._writer) for choice in self._choices if choice.has_news]
        if self._failure is not None:
            pieces.append(write_event(to_object(self._failure)))
        elif self._writer is not None and not self._running:
            pieces += [self._writer.usage(self._usage), DONE] if self._with_usage else [DONE]
        if not pieces and self._is_quiet:
            pieces.append(KEEP_ALIVE)
        self._is_quiet = False
        return b"".join(pieces)

    def _beat(self, period_s: float) -> None:
        """Wakes the task when nothing was sent for a whole period, so that proxies do not close the stream."""
        if self._is_quiet:
            self._news.set()
        self._is_quiet = True
        self._next_beat = asyncio.get_running_loop().call_later(period_s, self._beat, period_s)

"""The way out of a turn: events to the caller's sink, figures to span and metrics, what it costs to its charge, every end by one door."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from router.errors import TidegateError, internal
from router.model import (
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Queued,
    Sink,
    Started,
    TurnEvent,
    Usage,
    WorkerDelta,
    WorkerFinish,
)
from router.spending import Charge
from router.telemetry import Metrics, Stopwatch, TurnSpan, mark_error
from router.turn import Turn
from router.upstream.worker import Worker


class Answer:
    """Owns what a turn holds from outside, and gives it back in `close`."""

    def __init__(self, sink: Sink, model: str, metrics: Metrics, span: TurnSpan) -> None:
        self.span = span
        self.last_delta: WorkerDelta | None = None
        """What the worker said with its last token."""
        self._sink = sink
        self._model = model
        self._metrics = metrics
        self._clock = Stopwatch()
        self._turn: Turn | None = None
        self._charge: Charge | None = None
        self._outcome = ""
        self._last_words: Sequence[TurnEvent] = (Failed(internal()),)
        metrics.active_turns.labels(model).inc()

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return self._turn.usage if self._turn else Usage(0, 0)

    def owe(self, charge: Charge) -> None:
        """From here on the turn is booked."""
        self._charge = charge

    def wait(self, position: int, eta_s: float, low_s: float, high_s: float) -> None:
        """The turn waits for a worker."""
        self._sink([Queued(position, eta_s, low_s, high_s)])

    def start(self, turn: Turn, started: Started) -> None:
        """A worker is about to take the turn."""
        self._turn = turn
        self._sink([started])

    async def generate(self, worker: Worker, asked: GenerationRequest) -> None:
        """Runs the generation until the turn has ended. Leaving it for any reason ends it in the engine."""
        generation = worker.submit(asked, self._take_tokens)
        self._end_generation = generation.close
        try:
            await generation.wait()
        finally:
            generation.close()

    def fail(self, error: TidegateError) -> None:
        """Ends the turn as failed; does nothing when it has ended."""
        if not self._outcome:
            self._emit(self._turn.fail(error) if self._turn else [Failed(error)])

    def cancel(self, cancelled: asyncio.CancelledError) -> None:
        """Ends the turn as cancelled, or as failed when whoever cancelled it said why; does nothing when it has ended."""
        if cancelled.args and isinstance(error := cancelled.args[0], TidegateError):
            self.fail(error)
        elif not self._outcome:
            self._emit(self._turn.cancel() if self._turn else [Finished(FinishReason.CANCELLED)])

    async def close(self) -> None:
        """Settles, then tells the end: a caller that hears of it may count on it, and on having its quota back."""
        self._book_figures()
        try:
            if self._charge is not None:
                await self._charge.close(self._outcome, failed=isinstance(self._last_words[-1], Failed))
        finally:
            self._sink(self._last_words)

    def _take_tokens(self, delta: WorkerDelta) -> None:
        """Called by the worker's link, once a step."""
        turn, charge = self._turn, self._charge
        assert turn is not None, "started before it was submitted"
        assert charge is not None, "booked before it was started"
        if turn.ended:
            return
        if delta.tokens and not turn.has_tokens:
            self._metrics.first_token.labels(self._model).observe(self._clock.seconds())
            self.span.span.add_event("gen_ai.first_token")
        is_covered = charge.count(len(delta.tokens))
        if delta.finish is not WorkerFinish.RUNNING:
            self.last_delta = delta
            charge.cached(delta.cached_tokens or 0)
        self._emit(turn.feed(delta))
        if not is_covered:
            self._emit(turn.stop(FinishReason.BUDGET))
        if turn.ended:
            self._end_generation()

    def _emit(self, events: Sequence[TurnEvent]) -> None:
        """Passes events on, but keeps the last words for `close`."""
        if not events:
            return
        last = events[-1]
        if isinstance(last, Finished):
            self._outcome = last.reason.value
            self.span.span.set_attribute("gen_ai.response.finish_reasons", [self._outcome])
        elif isinstance(last, Failed):
            self._outcome = last.error.reason
            mark_error(self.span.span, last.error.reason)
        else:
            self._sink(events)
            return
        at = next(at for at, event in enumerate(events) if isinstance(event, Usage | Finished | Failed))
        if at:
            self._sink(events[:at])
        self._last_words = events[at:]

    def _book_figures(self) -> None:
        self._metrics.active_turns.labels(self._model).dec()
        self._metrics.turns.labels(self._model, self._outcome).inc()
        self._metrics.duration.labels(self._model).observe(self._clock.seconds())
        if self._turn is None:
            return
        usage = self._turn.usage
        self._metrics.prompt_tokens.labels(self._model).inc(usage.prompt_tokens)
        self._metrics.completion_tokens.labels(self._model).inc(usage.completion_tokens)
        self.span.span.set_attribute("gen_ai.usage.input_tokens", usage.prompt_tokens)
        self.span.span.set_attribute("gen_ai.usage.output_tokens", usage.completion_tokens)

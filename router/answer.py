"""The way out of a turn: events to the caller's sink, figures to span and metrics, and every end through one door."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from router.errors import TidegateError
from router.model import Failed, Finished, FinishReason, GenerationRequest, Sink, Started, TurnEvent, WorkerDelta
from router.telemetry import Metrics, Stopwatch, TurnSpan, mark_error
from router.turn import Turn
from router.upstream.worker import Worker


class Answer:
    """The way out of a turn: events go to the sink, figures to span and metrics, and every end leaves by `close`."""

    def __init__(self, sink: Sink, model: str, metrics: Metrics, span: TurnSpan) -> None:
        self.span = span
        self._sink = sink
        self._model = model
        self._metrics = metrics
        self._clock = Stopwatch()
        self._turn: Turn | None = None
        self._outcome = ""
        metrics.active_turns.labels(model).inc()

    def start(self, turn: Turn, started: Started) -> None:
        """A worker is about to take the turn."""
        self._turn = turn
        self._emit([started])

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

    def close(self) -> None:
        """Books the figures."""
        self._metrics.active_turns.labels(self._model).dec()
        self._metrics.turns.labels(self._model, self._outcome).inc()
        self._metrics.duration.labels(self._model).observe(self._clock.seconds())
        self._book_usage()

    def _take_tokens(self, delta: WorkerDelta) -> None:
        """Called by the worker's link, once a step."""
        assert self._turn is not None, "started before it was submitted"
        if delta.tokens and not self._turn.has_tokens:
            self._metrics.first_token.labels(self._model).observe(self._clock.seconds())
            self.span.span.add_event("gen_ai.first_token")
        self._emit(self._turn.feed(delta))
        if self._turn.ended:
            self._end_generation()

    def _emit(self, events: Sequence[TurnEvent]) -> None:
        if not events:
            return
        last = events[-1]
        if isinstance(last, Finished):
            self._outcome = last.reason.value
            self.span.span.set_attribute("gen_ai.response.finish_reasons", [self._outcome])
        elif isinstance(last, Failed):
            self._outcome = last.error.reason
            mark_error(self.span.span, last.error.reason)
        self._sink(events)

    def _book_usage(self) -> None:
        if self._turn is None:
            return
        usage = self._turn.usage
        self._metrics.prompt_tokens.labels(self._model).inc(usage.prompt_tokens)
        self._metrics.completion_tokens.labels(self._model).inc(usage.completion_tokens)
        self.span.span.set_attribute("gen_ai.usage.input_tokens", usage.prompt_tokens)
        self.span.span.set_attribute("gen_ai.usage.output_tokens", usage.completion_tokens)

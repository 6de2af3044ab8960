"""The way out of a turn: events to the caller's sink, figures to span and metrics, what it costs to its charge, every end by one door."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from router.admission.estimate import Timing
from router.admission.queue import Slot
from router.errors import TidegateError, answer_diverged, internal
from router.logs import fields, unlimited
from router.model import (
    Degraded,
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
from router.replay import Replay
from router.routing.route import Route
from router.spending import Charge
from router.telemetry import Metrics, Stopwatch, TurnSpan, mark_error
from router.turn import AnyTurn, find_loss

log = logging.getLogger("tidegate.turn")


class Answer:
    """Owns what a turn holds from outside, and gives it back in `close`."""

    __slots__ = (
        "_charge",
        "_clock",
        "_first_s",
        "_generation",
        "_has_moved",
        "_last_words",
        "_metrics",
        "_model",
        "_of_model",
        "_outcome",
        "_queued_s",
        "_replay",
        "_request_id",
        "_route",
        "_sink",
        "_slot",
        "_turn",
        "_worker",
        "last_delta",
        "span",
    )

    def __init__(self, sink: Sink, model: str, metrics: Metrics, span: TurnSpan, request_id: str) -> None:
        self.span = span
        self._request_id = request_id
        self._worker = ""
        self._queued_s: float | None = None
        self._first_s: float | None = None
        self.last_delta: WorkerDelta | None = None
        """What the worker said with its last token."""
        self._sink = sink
        self._model = model
        self._metrics = metrics
        self._of_model = metrics.of_model(model)
        self._clock = Stopwatch()
        self._turn: AnyTurn | None = None
        self._charge: Charge | None = None
        self._outcome = ""
        self._replay: Replay | None = None
        self._has_moved = False
        self._last_words: Sequence[TurnEvent] = (Failed(internal()),)
        self._of_model.active_turns.inc()

    @property
    def timing(self) -> Timing:
        """How long its worker needed, as far as it said; what it had cached is a guess where it did not."""
        usage = self._turn.usage if self._turn else Usage(0, 0)
        last = self.last_delta or WorkerDelta(())
        new_tokens = usage.prompt_tokens - (self._route.cached_tokens if last.cached_tokens is None else last.cached_tokens)
        batch = self._route.worker.load.active
        return Timing(new_tokens, usage.prompt_tokens, usage.completion_tokens, last.prefill_s, last.decode_s, batch)

    def settle(self, model: str, degraded: Degraded | None) -> None:
        """This model answers, and the turn's figures are its own from here on; `degraded` when it is a smaller one than was asked for."""
        if model != self._model:
            self._of_model.active_turns.dec()
            self._model, self._of_model = model, self._metrics.of_model(model)
            self._of_model.active_turns.inc()
        self.span.span.set_attribute("gen_ai.response.model", model)
        if degraded is not None:
            self._metrics.downgraded.labels(*degraded).inc()
            self._sink([degraded])

    def owe(self, charge: Charge) -> None:
        """From here on the turn is booked."""
        self._charge = charge
        self._queued_s = -self._clock.seconds()

    def wait(self, position: int, eta_s: float, low_s: float, high_s: float) -> None:
        """The turn waits for a worker."""
        self._sink([Queued(position, eta_s, low_s, high_s)])

    def prepare(self, turn: AnyTurn, slot: Slot) -> None:
        """The turn may run."""
        self._turn = turn
        self._slot = slot
        self._queued_s = (self._queued_s or 0.0) + self._clock.seconds()

    def start(self, started: Started) -> None:
        """A worker is about to take the turn, which costs from here on."""
        assert self._charge is not None, "booked before it starts"
        self._charge.begin(self._slot)
        self._sink([started])

    async def generate(self, route: Route, asked: GenerationRequest) -> None:
        """Runs the generation until the turn has ended. Leaving it for any reason ends it in the engine. Raises WorkerError."""
        assert self._charge is not None, "booked before it starts"
        self._route, self._worker = route, route.worker.address
        self._generation = route.worker.submit(asked, self._take_tokens)
        try:
            await self._generation.wait()
        finally:
            self._generation.close()
            self._charge.catch_up()

    @property
    def tokens(self) -> Sequence[int]:
        """All that was made for it so far."""
        return self._turn.tokens if self._turn else ()

    def move(self, reason: str) -> None:
        """Its worker was lost and another takes over."""
        self._metrics.moved_turns.labels(self._model, reason).inc()
        self.span.span.add_event("worker_lost", {"error.type": reason})
        self._has_moved = True

    def replay(self) -> None:
        """The next worker begins anew, and must begin alike."""
        self._replay = Replay(self.tokens)

    def stop(self, reason: FinishReason) -> None:
        """Ends the answer as it is."""
        assert self._turn is not None, "started before it is stopped"
        self._emit(self._turn.stop(reason))

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
        self._log_end()
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
        if delta.tokens and not self._route.has_tokens:
            self._take_first(turn)
        new = delta if self._replay is None else self._compare(self._replay, delta)
        if new is None:
            return
        is_covered = charge.count(len(new.tokens))
        if new.finish and (new := self._take_last(new)) is None:
            return
        self._emit(turn.feed(new))
        if not is_covered:
            self._emit(turn.stop(FinishReason.BUDGET))
        if turn.ended:
            self._generation.close()

    def _take_first(self, turn: AnyTurn) -> None:
        self._route.take_first()
        self._slot.take_first()
        if not turn.has_tokens:
            self._first_s = self._clock.seconds()
            self._of_model.first_token.observe(self._first_s)
            self.span.span.add_event("gen_ai.first_token")

    def _compare(self, replay: Replay, delta: WorkerDelta) -> WorkerDelta | None:
        """What is new in an answer that is made anew."""
        if (new := replay.take(delta)) is None:
            self._generation.end(answer_diverged())
        elif replay.is_over:
            self._replay = None
        return new

    def _take_last(self, delta: WorkerDelta) -> WorkerDelta | None:
        """The worker's last words; None when it gave the turn up, which another worker may take."""
        assert self._turn is not None and self._charge is not None, "started before it ends"  # noqa: PT018
        if loss := find_loss(delta):
            self._emit(self._turn.feed(delta._replace(finish=WorkerFinish.RUNNING)))
            self._generation.end(loss)
            return None
        if self._has_moved:  # its figures are those of a longer prompt
            return delta._replace(cached_tokens=None)
        self.last_delta = delta
        self._charge.cached(delta.cached_tokens or 0)
        return delta

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
        self._of_model.active_turns.dec()
        self._metrics.turns.labels(self._model, self._outcome).inc()
        self._of_model.duration.observe(self._clock.seconds())
        if self._turn is None:
            return
        usage = self._turn.usage
        self._of_model.prompt_tokens.inc(usage.prompt_tokens)
        self._of_model.completion_tokens.inc(usage.completion_tokens)
        self.span.span.set_attribute("gen_ai.usage.input_tokens", usage.prompt_tokens)
        self.span.span.set_attribute("gen_ai.usage.output_tokens", usage.completion_tokens)

    def _log_end(self) -> None:
        """One line for each turn. What never was booked costs its caller nothing, so of such lines only a few are written."""
        usage = self._turn.usage if self._turn else Usage(0, 0)
        told = {
            "request_id": self._request_id,
            "tenant": self._charge.tenant if self._charge else "",
            "model": self._model,
            "worker": self._worker,
            "outcome": self._outcome,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "queue_ms": _to_ms(self._queued_s if self._worker else None),
            "first_token_ms": _to_ms(self._first_s),
            "ms": _to_ms(self._clock.seconds()),
        }
        log.info("turn ended", extra=unlimited(**told) if self._charge else fields(self._outcome, **told))


def _to_ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)

"""One answer in the making, without I/O: token ids in, events out.

Detokenises, finds tool calls, matches stop texts, counts, and decides how the turn ends. It is fed from the lane reader's frame loop, so
nothing here waits. Stop texts are looked for in the text only: none begins, ends or stands in a tool call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from router.errors import TidegateError, WorkerError, engine_failed, engine_refused, guide_invalid, worker_lost, worker_stalled
from router.model import Failed, Finished, FinishReason, Logprobs, TextDelta, TokenLogprob, TurnEvent, Usage, WorkerDelta, WorkerFinish
from router.text.calls import CallParser
from router.text.decode import Decoder
from router.text.stops import StopMatcher
from router.tools import ToolCallDelta

GUIDE_TENSOR = "guided_decoding_guide: "
"""How a worker begins its words about a guide that it cannot compile; they are for the caller."""


class AnyTurn(ABC):
    """What every answer has, in whichever form it is told: its counts and its end."""

    __slots__ = ("_cached_tokens", "_guide_field", "_prompt_tokens", "ended", "tokens")

    def __init__(self, prompt_tokens: int, guide_field: str = "response_format") -> None:
        """`guide_field` is where the caller had asked for the answer's form."""
        self._prompt_tokens = prompt_tokens
        self._guide_field = guide_field
        self.tokens: list[int] = []
        """All that the workers made for it, for going on elsewhere."""
        self._cached_tokens = 0
        self.ended = False
        """Whether a terminal event was given out; later input is ignored."""

    @property
    def has_tokens(self) -> bool:
        """Whether the worker has brought any; asked in every step, so it makes no Usage."""
        return bool(self.tokens)

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return Usage(self._prompt_tokens, len(self.tokens), self._cached_tokens)

    def feed(self, delta: WorkerDelta) -> list[TurnEvent]:
        """What a frame brought for this turn."""
        if self.ended:
            return []
        self.tokens += delta.tokens
        events, stop = self._read(delta)
        if delta.cached_tokens:
            self._cached_tokens = min(delta.cached_tokens, self._prompt_tokens)
        if stop is not None:
            return events + self._complete(FinishReason.STOP, stop)
        return events + self._end(delta) if delta.finish else events

    def cancel(self) -> list[TurnEvent]:
        """The caller gave the turn up. What was held back stays back."""
        return [] if self.ended else self._finish(FinishReason.CANCELLED)

    def stop(self, reason: FinishReason) -> list[TurnEvent]:
        """The router ends the answer here; what was held back is part of it."""
        return [] if self.ended else self._flush(reason)

    def fail(self, error: TidegateError) -> list[TurnEvent]:
        """The turn cannot go on."""
        if self.ended:
            return []
        self.ended = True
        return [self.usage, Failed(error)]

    @abstractmethod
    def _read(self, delta: WorkerDelta) -> tuple[list[TurnEvent], str | None]:
        """What the tokens bring, and the stop that is complete with them; "" for an end that has no text."""

    def _read_rest(self) -> tuple[list[TurnEvent], str | None]:
        """What was held back, when the answer ends."""
        return [], None

    def _end(self, delta: WorkerDelta) -> list[TurnEvent]:
        if delta.refusal.startswith(GUIDE_TENSOR):
            return self.fail(guide_invalid(delta.refusal.removeprefix(GUIDE_TENSOR), self._guide_field))
        error = find_loss(delta) or (engine_refused() if delta.finish is WorkerFinish.REFUSED else None)
        return self.fail(error) if error else self._flush(_REASONS[delta.finish])

    def _flush(self, reason: FinishReason) -> list[TurnEvent]:
        events, stop = self._read_rest()
        return events + self._complete(FinishReason.STOP if stop else reason, stop or "")

    def _complete(self, reason: FinishReason, stop: str) -> list[TurnEvent]:
        return self._finish(reason, stop)

    def _finish(self, reason: FinishReason, stop: str = "") -> list[TurnEvent]:
        self.ended = True
        return [self.usage, Finished(reason, stop)]


class Turn(AnyTurn):
    """An answer that is told as text."""

    __slots__ = ("_calls", "_decoder", "_logprobs", "_stops")

    def __init__(
        self,
        decoder: Decoder,
        stops: Sequence[str],
        prompt_tokens: int,
        *,
        logprobs: bool = False,
        calls: CallParser | None = None,
    ) -> None:
        """`logprobs` says whether the caller wants them; a frame may hold some because another turn does. `calls` finds tool calls."""
        super().__init__(prompt_tokens, "tools" if calls and calls.forced else "response_format")
        self._decoder = decoder
        self._logprobs = logprobs
        self._stops = StopMatcher(stops) if stops else _NO_STOPS
        self._calls = calls

    def _read(self, delta: WorkerDelta) -> tuple[list[TurnEvent], str | None]:
        events, stop = self._read_text(self._decoder.feed(delta.tokens))
        if self._logprobs and delta.log_probs:
            events.append(self._tell_logprobs(delta.tokens, delta.log_probs))
        return events, "" if stop is None and self._calls and self._calls.done else stop

    def _read_rest(self) -> tuple[list[TurnEvent], str | None]:
        events, stop = self._read_text(self._decoder.flush())
        if self._calls is not None and stop is None:
            rest, stop = self._read_pieces(self._calls.flush())
            events += rest
        text = "" if stop else self._stops.flush()
        return events + ([TextDelta(text)] if text else []), stop

    def _complete(self, reason: FinishReason, stop: str) -> list[TurnEvent]:
        called = reason is FinishReason.STOP and self._calls is not None and self._calls.whole
        return self._finish(FinishReason.TOOL_CALLS if called else reason, stop)

    def _read_text(self, text: str) -> tuple[list[TurnEvent], str | None]:
        """What the text brings, and the stop in it."""
        if self._calls is not None:
            return self._read_pieces(self._calls.feed(text))
        shown, stop = self._stops.feed(text)
        return [TextDelta(shown)] if shown else [], stop

    def _read_pieces(self, pieces: Iterable[TextDelta | ToolCallDelta]) -> tuple[list[TurnEvent], str | None]:
        events: list[TurnEvent] = []
        for piece in pieces:
            if isinstance(piece, ToolCallDelta):
                shown, stop = self._stops.flush(), None
            else:
                shown, stop = self._stops.feed(piece.text)
            if shown:
                events.append(TextDelta(shown))
            if stop is not None:
                return events, stop
            if isinstance(piece, ToolCallDelta):
                events.append(piece)
        return events, None

    def _tell_logprobs(self, tokens: Sequence[int], log_probs: Sequence[float]) -> Logprobs:
        """One entry per token, of held-back ones too; their joined bytes are the text's and those of a character that is not whole yet."""
        pairs = zip(tokens, log_probs, strict=True)
        return Logprobs([TokenLogprob(token, self._decoder.bytes_of(token), log_prob) for token, log_prob in pairs])


_NO_STOPS = StopMatcher(())
"""Keeps nothing, so all answers without stops share it."""

_REASONS = {
    WorkerFinish.END_ID: FinishReason.STOP,
    WorkerFinish.STOP_WORDS: FinishReason.STOP,
    WorkerFinish.LENGTH: FinishReason.LENGTH,
}

# A worker that ends a turn nobody cancelled has dropped it: that is not success.
_LOSSES = {
    WorkerFinish.CANCELLED: worker_lost,
    WorkerFinish.TIMED_OUT: worker_stalled,
    WorkerFinish.FAILED: engine_failed,
}


def find_loss(delta: WorkerDelta) -> WorkerError | None:
    """The error of a worker that gave a turn up; another may take it."""
    loss = _LOSSES.get(delta.finish)
    return loss() if loss else None

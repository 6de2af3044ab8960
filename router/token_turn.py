"""One answer in the making for a caller who wants token ids: stops of ids, log probabilities beside them, and no text."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from router.model import TurnEvent, WorkerDelta
from router.tokens import TokenDelta
from router.turn import AnyTurn


class TokenTurn(AnyTurn):
    """An answer that is told as token ids. A stop is part of it."""

    __slots__ = ("_logprobs", "_stops", "_tail")

    def __init__(self, stops: Sequence[Sequence[int]], prompt_tokens: int, *, logprobs: bool = False) -> None:
        super().__init__(prompt_tokens)
        self._logprobs = logprobs
        self._stops = [tuple(stop) for stop in stops]
        self._tail: deque[int] = deque(maxlen=max(map(len, self._stops), default=0))

    def _read(self, delta: WorkerDelta) -> tuple[list[TurnEvent], str | None]:
        end = self._find_stop(delta.tokens)
        tokens = delta.tokens[:end]
        log_probs = delta.log_probs[:end] if self._logprobs and delta.log_probs else None
        return [TokenDelta(tokens, log_probs)] if tokens else [], None if end is None else ""

    def _find_stop(self, tokens: Sequence[int]) -> int | None:
        """How many of the tokens there are with the first that completes a stop."""
        for count, token in enumerate(tokens, 1) if self._stops else ():
            self._tail.append(token)
            tail = tuple(self._tail)
            if any(tail[-len(stop) :] == stop for stop in self._stops):
                return count
        return None

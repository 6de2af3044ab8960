"""An answer that is made a second time and must begin like the first. Sans-I/O."""

from __future__ import annotations

from collections.abc import Sequence

from router.model import WorkerDelta


class Replay:
    """Takes off what the second making repeats."""

    def __init__(self, told: Sequence[int]) -> None:
        """`told` are the tokens of the first making."""
        self._told = list(told)
        self._at = 0

    def take(self, delta: WorkerDelta) -> WorkerDelta | None:
        """What is new in a delta; None when it is not the same answer."""
        left = len(self._told) - self._at
        repeated = list(delta.tokens[:left])
        if repeated != self._told[self._at : self._at + len(repeated)]:
            return None
        if len(repeated) < left and delta.finish:
            return None
        self._at += len(repeated)
        log_probs = delta.log_probs and delta.log_probs[len(repeated) :]
        return delta._replace(tokens=delta.tokens[len(repeated) :], log_probs=log_probs)

    @property
    def is_over(self) -> bool:
        """Whether all that was told has been repeated."""
        return self._at == len(self._told)

"""Error bars for predicted waits that are checked against what came true.

Three corrections, each from observed waits only, turn the model's figure into a span:

1. Bias: a decaying ratio of actual to modelled waits.
2. Shape: quantiles of the latest relative errors, times the square root of the turns ahead and one, because the sum of many turns is
   steadier than one (locally weighted conformal prediction, Lei et al. 2018, arXiv 1604.04173).
3. Stretch: waits that overlap err together, so the latest errors say too little about the next. Each bar is stretched a little when a wait
   falls outside and shrunk when it does not, in such proportion that one in ten falls outside in the long run, whatever the waits do
   (quantile tracking; Gibbs & Candès 2021, arXiv 2106.00170; Angelopoulos et al. 2023, arXiv 2307.16895).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from router.admission.entry import Span
from router.admission.fit import Quantiles

_OUTSIDE = 0.1
_STRETCH_RATE = 0.05
_STRETCH_MOST = 4.0
_MEMORY = 0.99
_LATEST = 512
_EXPONENTIAL = tuple(-math.log(1 - at / 20) - 1 for at in range(1, 20))
"""Relative errors when slots come free at random: the bars before anything is known."""


class Wait(NamedTuple):
    """A predicted wait: the span that is told, what the model alone said, and the turns ahead."""

    span: Span
    model_s: float
    turns: int


class Bars:
    """What is known of the errors of predicted waits."""

    def __init__(self) -> None:
        self._actual_s = self._model_s = 0.1
        self._errors = Quantiles(_EXPONENTIAL, _LATEST)
        self._low_stretch = self._high_stretch = 0.0  # logarithms

    @property
    def learnt(self) -> bool:
        """Whether the bars are observed ones."""
        return self._errors.learnt

    def draw(self) -> Callable[[float, int], Wait]:
        """Makes waits of the model's seconds and the turns ahead, by what is known now."""
        bias, mid = self._actual_s / self._model_s, self._errors.at(0.5)
        below = (mid - self._errors.at(_OUTSIDE)) * math.exp(self._low_stretch)
        above = (self._errors.at(1 - _OUTSIDE) - mid) * math.exp(self._high_stretch)

        def draw_one(model_s: float, turns: int) -> Wait:
            expected = model_s * bias
            unit = expected / math.sqrt(turns + 1)
            middle = max(0.0, expected + mid * unit)
            return Wait(Span(max(0.0, middle - below * unit), middle, middle + above * unit), model_s, turns)

        return draw_one

    def observe(self, predicted: Wait, actual_s: float) -> None:
        """Learns how a predicted wait came true."""
        expected = predicted.model_s * self._actual_s / self._model_s
        self._errors.add((actual_s / expected - 1) * math.sqrt(predicted.turns + 1))
        self._actual_s = _MEMORY * self._actual_s + actual_s
        self._model_s = _MEMORY * self._model_s + predicted.model_s
        self._low_stretch = _stretch(self._low_stretch, actual_s < predicted.span.low)
        self._high_stretch = _stretch(self._high_stretch, actual_s > predicted.span.high)


def _stretch(stretch: float, outside: bool) -> float:
    moved = stretch + _STRETCH_RATE * (outside - _OUTSIDE)
    return min(max(moved, -_STRETCH_MOST), _STRETCH_MOST)

"""How long a worker needs, and how long a turn will wait: a model that follows the workers' own figures.

Theory of operation. A worker tells, with the end of every turn, how long prefill and decode took. Two small fits follow them:

    prefill = a + b * new + c * new * prompt          new: prompt tokens that were not cached (linear layers, then attention)
    step    = d + e * batch                           seconds per output token with `batch` sequences in flight

so a turn holds its slot for  prefill + output * step.  While turns wait all slots are busy. The slots' work under way now and at the moment
a turn begins are alike, so it begins when the slots together have done the work ahead of it, and one slot more has come free:

    wait = (work ahead + mean work of the turns that run) / slots

What this leaves out (who comes later and goes first, other routers, wrong lengths) is learnt from the waits that came true; see bars.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from router.admission.bars import Bars, Wait
from router.admission.entry import Span, Work
from router.admission.fit import Quantiles, Regression

_K, _M, _BATCH = 1e-3, 1e-6, 1e-2  # features in thousands, millions and hundreds, to be near 1
_PREFILL_PRIOR = (0.02, 0.1, 0.0)
_STEP_PRIOR = (0.02, 0.02)
_RATIO_PRIOR = (0.5, 0.8, 1.0, 1.25, 2.0)
_BATCH_RATE = 0.05
_SHORTEST_S = 1e-3


@dataclass(frozen=True, slots=True)
class Timing:
    """What a worker tells of a turn that ended. Seconds; zero where the worker does not say."""

    new_tokens: int
    prompt_tokens: int
    output_tokens: int
    prefill_s: float
    decode_s: float
    batch: int


class TimeModel:
    """The time model of one model's workers."""

    def __init__(self) -> None:
        self._prefill = Regression(_PREFILL_PRIOR)
        self._prefill_ratio = Quantiles(_RATIO_PRIOR)
        self._step = Regression(_STEP_PRIOR, doubt=0.1)
        self._batch = 1.0
        self._bars = Bars()

    @property
    def calibrated(self) -> bool:
        """Whether enough waits came true for their error bars to be observed ones."""
        return self._bars.learnt

    @property
    def step_s(self) -> float:
        """Seconds per output token at the batch size of late."""
        return self._step.predict((1.0, self._batch * _BATCH))

    @property
    def step_weights(self) -> tuple[float, float]:
        """Seconds per step, and per sequence in it; never negative."""
        per_step, per_hundred = self._step.weights
        return max(0.0, per_step), max(0.0, per_hundred) * _BATCH

    @property
    def prefill_weights(self) -> tuple[float, float, float]:
        """Seconds per turn, per new prompt token, and per pair of a new and any prompt token."""
        per_turn, per_k, per_m = self._prefill.weights
        return per_turn, per_k * _K, per_m * _M

    def prefill(self, new_tokens: float, prompt_tokens: float) -> Span:
        """Seconds from a worker's start of a prompt to the first token."""
        expected = self._prefill.predict(_prefill_features(new_tokens, prompt_tokens))
        ratio = self._prefill_ratio.at
        return Span(expected * ratio(0.1), expected * ratio(0.5), expected * ratio(0.9))

    def forecast(self, running: Work, slots: int) -> Forecast:
        """Predicts waits while `running` is under way on this many slots."""
        return Forecast(self, self._bars, running, slots)

    def observe(self, timing: Timing) -> None:
        """Learns from a turn that ended; what the worker did not tell says nothing."""
        if timing.prefill_s > 0:
            features = _prefill_features(timing.new_tokens, timing.prompt_tokens)
            self._prefill_ratio.add(timing.prefill_s / max(self._prefill.predict(features), _SHORTEST_S))
            self._prefill.observe(features, timing.prefill_s)
        if timing.decode_s > 0 and timing.output_tokens > 1:
            self._batch += _BATCH_RATE * (timing.batch - self._batch)
            self._step.observe((1.0, timing.batch * _BATCH), timing.decode_s / (timing.output_tokens - 1))

    def observe_wait(self, predicted: Wait, actual_s: float) -> None:
        """Learns how a predicted wait came true."""
        self._bars.observe(predicted, actual_s)


class Forecast:
    """Predicts waits as of one moment: the model's figures are read once, so that telling a whole queue is cheap."""

    def __init__(self, times: TimeModel, bars: Bars, running: Work, slots: int) -> None:
        self._slots = max(1, slots)
        self._per_turn_s, self._per_new_s, self._per_pair_s = times.prefill_weights
        self._step_s = times.step_s
        self._one_more_s = self._hold_s(running) / max(1, running.turns)
        self._draw = bars.draw()

    def wait(self, ahead: Work) -> Wait:
        """The wait of a turn with this work ahead."""
        return self._draw(max(_SHORTEST_S, (self._hold_s(ahead) + self._one_more_s) / self._slots), ahead.turns)

    def _hold_s(self, work: Work) -> float:
        """Seconds that turns hold a slot, all together."""
        prefill = self._per_turn_s * work.turns + self._per_new_s * work.new_tokens + self._per_pair_s * work.attention
        return max(0.0, prefill) + work.output_tokens * self._step_s


def _prefill_features(new_tokens: float, prompt_tokens: float) -> tuple[float, float, float]:
    return 1.0, new_tokens * _K, new_tokens * prompt_tokens * _M

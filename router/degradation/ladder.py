"""The degradation ladder of a model's pool: what becomes of a turn that would start now. Pure.

    admit       a slot is free, and the workers have no more under way than the SLO bears
    wait        visibly, in the queue: the first token will come within the SLO, or nobody smaller may answer
    downgrade   to a smaller model, disclosed: the SLO is out of reach, or nobody would serve the turn here
    refuse      with the time after which to come again

The rungs are tried in this order for each turn by itself, by what the admission queue foresees for it at its own place there: with fair
queueing the flood of one tenant does not send another's turns down. Long prompts alone degrade nothing: who would begin at once, on workers
that run nothing else, stays.
"""

from __future__ import annotations

from enum import Enum

from router.admission.entry import NO_WAIT, Outlook
from router.degradation.gate import Gate, Thresholds
from router.errors import TidegateError

SATURATED = "SATURATED"
"""Why a turn went down whose wait would have broken the SLO; otherwise the reason is that of the error it would have met."""

Prospect = Outlook | TidegateError
"""What a turn would meet in a pool: an outlook, or the error with which it would not be served there."""


class Rung(Enum):
    """What becomes of a turn."""

    ADMIT = "admit"
    WAIT = "wait"
    DOWNGRADE = "downgrade"
    REFUSE = "refuse"


class Ladder:
    """The ladder of one model. `slo_s` is the time to the first token that it aims at; None is any."""

    def __init__(self, slo_s: float | None, thresholds: Thresholds = Thresholds()) -> None:  # noqa: B008 - frozen
        self.slo_s = slo_s
        self._enter = thresholds.enter
        self._gate = Gate(thresholds)

    def is_degraded(self, now: float) -> bool:
        """Whether turns that would wait for long go down."""
        return self._gate.is_open(now)

    def needs_lower(self, here: Prospect, hardness: float, now: float) -> bool:
        """Whether the turn should go down, if it may and somebody there takes it. Changes nothing."""
        if isinstance(here, TidegateError):
            return True
        return measure_level(here, self.slo_s) > self._gate.bar(hardness, now)

    def decide(self, here: Prospect, hardness: float, now: float, *, has_lower: bool) -> Rung:
        """The rung of a turn that is here now. `has_lower`: a smaller model may answer it and `takes` it."""
        goes_down = has_lower and self.needs_lower(here, hardness, now)
        if isinstance(here, TidegateError):
            return Rung.DOWNGRADE if goes_down else Rung.REFUSE
        self._gate.note(measure_level(here, self.slo_s), now, went_down=goes_down)
        if goes_down:
            return Rung.DOWNGRADE
        return Rung.ADMIT if here.wait == NO_WAIT else Rung.WAIT

    def takes(self, here: Prospect, above: Prospect, slo_s: float | None) -> bool:
        """Whether a turn may come down to this pool from one above, whose SLO is `slo_s`: it must be in time here.

        One that would not be served at all above may wait here, as long as it is served.
        """
        if isinstance(here, TidegateError) or isinstance(above, TidegateError):
            return isinstance(here, Outlook)
        return measure_level(here, slo_s if self.slo_s is None else self.slo_s) <= self._enter


def measure_level(outlook: Outlook, slo_s: float | None) -> float:
    """The time to the first token that nine in ten such turns do not exceed, as a share of the SLO; nothing for who is alone."""
    if slo_s is None or outlook.wait == outlook.delay == NO_WAIT:
        return 0.0
    return (outlook.wait.high + outlook.delay.high + outlook.prefill.high) / slo_s

"""Whether a pool sends turns down to a smaller model: hysteresis and a dwell, so that callers do not see it change its mind. Pure.

A turn's level is its predicted time to the first token as a share of the pool's SLO.

    closed ──(a turn above `enter`)──► open ──(for `dwell_s` at least, and no turn above `leave` for `calm_s`)──► closed

Closed, nobody goes down. Open, a turn goes down when its own level is above a bar, which is `enter` for the hardest turns, `leave` for
middling ones and as far below that for the easiest: these lose least. So the large model is never left idle while others answer for it, a
turn that would begin soon keeps it, and in a lasting overload levels settle within the band and the gate stays open.

The two sides are not alike. To open late makes turns wait, so it opens at once; to close late costs next to nothing, for then nobody waits.
So the dwell is all on the open side: a pool begins to send turns down once in `dwell_s` at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Levels and times of a gate. With this dwell no time of more than a minute sees two changes a minute."""

    enter: float = 0.9
    leave: float = 0.6
    dwell_s: float = 180.0
    calm_s: float = 60.0


class Gate:
    """The gate of one pool. Times are seconds of one monotonic clock, and never go back."""

    def __init__(self, thresholds: Thresholds = Thresholds()) -> None:
        self._thresholds = thresholds
        self._open = False
        self._opened_s = self._pressed_s = -math.inf

    def is_open(self, now: float) -> bool:
        """Whether turns go down. It closes by itself, whether or not anybody comes."""
        if now >= max(self._opened_s + self._thresholds.dwell_s, self._pressed_s + self._thresholds.calm_s):
            self._open = False
        return self._open

    def bar(self, hardness: float, now: float) -> float:
        """The level above which a turn of this hardness, from 0 to 1, should go down."""
        enter, leave = self._thresholds.enter, self._thresholds.leave
        return leave + (2 * hardness - 1) * (enter - leave) if self.is_open(now) else enter

    def note(self, level: float, now: float, *, went_down: bool) -> None:
        """A turn came with this level, and went down or did not."""
        if went_down and not self.is_open(now):
            self._open, self._opened_s = True, now
        if level > self._thresholds.leave:
            self._pressed_s = now

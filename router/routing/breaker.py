"""Circuit breakers: a worker that keeps failing gets no turns for a while, then one to try; and never are too many out at once. Pure.

What a turn's end says of its worker is its outcome. Faults count against the worker. Answers count for it, and so do errors that are the
caller's doing: the worker was there to give them. A worker that is full is not down: it is used less for a moment and needs no trial.

    closed ──(its share of faults stands out among its peers')──► open ──(pause over)──► one trial ──answer──► closed
                                                                   ▲                        │
                                                                   └────── fault, twice the pause ──┘

A worker is ejected when, of its last ten outcomes, the share of faults exceeds that of the others by half; a fault that all have alike is
nobody's. And whatever the breakers say, of the workers that are up at least a share stays in use: those whose pause ends first come back
early, for a doubtful worker is better than none. (Outlier ejection and its limit as in Envoy; the states as in Nygard, Release It!, 2007.)
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from router.errors import CallerError, Code, TidegateError, WorkerError


class Outcome(Enum):
    """What a turn says of its worker."""

    ANSWERED = "answered"
    BUSY = "busy"
    FAULT = "fault"
    NOTHING = "nothing"


_MOST_EJECTIONS = 32
_ANSWERS = ("ENGINE_REFUSED",)
"""Reasons of worker errors that are about the request."""


def judge(error: TidegateError | None) -> Outcome:
    """The outcome of a turn that ended with this error, or with an answer."""
    if error is None or isinstance(error, CallerError) or error.reason in _ANSWERS:
        return Outcome.ANSWERED
    if not isinstance(error, WorkerError) or error.reason == "NO_WORKER":
        return Outcome.NOTHING
    return Outcome.BUSY if error.code is Code.RESOURCE_EXHAUSTED else Outcome.FAULT


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """Of the last `window` outcomes, once there are `enough`, the share of faults may exceed the peers' by less than `margin`. A pause is
    `pause_s`, doubled each time up to `longest_pause_s`. At least `floor` of the workers that are up stay in use. A worker that was full
    has `busy_weight` for `busy_s`."""

    window: int = 10
    enough: int = 5
    margin: float = 0.5
    pause_s: float = 1.0
    longest_pause_s: float = 30.0
    floor: float = 0.5
    busy_s: float = 1.0
    busy_weight: float = 0.25


@dataclass(slots=True)
class _Breaker:
    """`open_until_s` is None while closed; `trial` is the turn that tries an open one."""

    faults: deque[bool]
    open_until_s: float | None = None
    ejections: int = 0
    trial: Attempt | None = None
    busy_until_s: float = -math.inf

    @property
    def is_open(self) -> bool:
        """Whether the worker is ejected."""
        return self.open_until_s is not None

    @property
    def share(self) -> float:
        """Of faults among the last outcomes."""
        return sum(self.faults) / max(1, len(self.faults))

    def close(self) -> None:
        """The worker is one of the others again."""
        self.open_until_s = self.trial = None
        self.faults.clear()


class Attempt:
    """One turn on a worker. End it in `finally`."""

    def __init__(self, breakers: Breakers, worker: str) -> None:
        self._breakers = breakers
        self._worker = worker
        self._has_ended = False

    def answer(self) -> None:
        """Tokens came, so the worker does its work: if this is the trial, it need not run to its end."""
        self._breakers.take_answer(self, self._worker)

    def end(self, outcome: Outcome, now: float) -> None:
        """The turn has ended on this worker. Only the first call counts."""
        if not self._has_ended:
            self._has_ended = True
            self._breakers.take_end(self, self._worker, outcome, now)


class Breakers:
    """The breakers of one model's workers. Times are seconds of one monotonic clock."""

    def __init__(self, limits: BreakerLimits = BreakerLimits()) -> None:
        self._limits = limits
        self._breakers: dict[str, _Breaker] = {}

    def leave(self, worker: str) -> None:
        """Forgets a worker that is no longer configured. One whose connection breaks stays: it may break again and again."""
        self._breakers.pop(worker, None)

    def list_usable(self, up: Sequence[str], now: float) -> list[str]:
        """Those of the workers that are up that may get a turn; some, if any is up."""
        usable = [worker for worker in up if self._may_use(worker, now)]
        lacking = math.ceil(self._limits.floor * len(up)) - len(usable)
        if lacking > 0:
            out = sorted((worker for worker in up if worker not in usable), key=lambda worker: self._breakers[worker].open_until_s or now)
            usable += out[:lacking]
        return usable

    def weigh(self, worker: str, now: float) -> float:
        """The share of its slots that a worker should be given."""
        breaker = self._breakers.get(worker)
        return self._limits.busy_weight if breaker and now < breaker.busy_until_s else 1.0

    def list_open(self) -> list[str]:
        """Workers that are ejected, or on trial."""
        return [worker for worker, breaker in self._breakers.items() if breaker.is_open]

    def begin(self, worker: str) -> Attempt:
        """A turn is sent to a worker; to an ejected one as its trial, if none is under way."""
        breaker = self._breakers.setdefault(worker, _Breaker(deque(maxlen=self._limits.window)))
        attempt = Attempt(self, worker)
        if breaker.is_open and breaker.trial is None:
            breaker.trial = attempt
        return attempt

    def take_answer(self, attempt: Attempt, worker: str) -> None:
        """For Attempt."""
        breaker = self._breakers.get(worker)
        if breaker and breaker.trial is attempt:
            breaker.close()

    def take_end(self, attempt: Attempt, worker: str, outcome: Outcome, now: float) -> None:
        """For Attempt."""
        breaker = self._breakers.get(worker)
        if breaker is None:
            return
        if outcome is Outcome.BUSY:
            breaker.busy_until_s = now + self._limits.busy_s
        if breaker.trial is attempt:
            self._end_trial(breaker, outcome, now)
        elif not breaker.is_open:  # what was sent before the ejection says nothing new
            self._count(worker, breaker, outcome, now)

    def _may_use(self, worker: str, now: float) -> bool:
        breaker = self._breakers.get(worker)
        return breaker is None or breaker.open_until_s is None or (breaker.trial is None and now >= breaker.open_until_s)

    def _end_trial(self, breaker: _Breaker, outcome: Outcome, now: float) -> None:
        breaker.trial = None
        if outcome is Outcome.FAULT:
            self._eject(breaker, now)
        elif outcome is not Outcome.NOTHING:
            breaker.close()

    def _count(self, worker: str, breaker: _Breaker, outcome: Outcome, now: float) -> None:
        if outcome in (Outcome.BUSY, Outcome.NOTHING):
            return
        breaker.faults.append(outcome is Outcome.FAULT)
        if outcome is Outcome.FAULT and self._stands_out(worker, breaker):
            self._eject(breaker, now)
        elif len(breaker.faults) == self._limits.window and not any(breaker.faults):
            breaker.ejections = 0

    def _stands_out(self, worker: str, breaker: _Breaker) -> bool:
        peers = [peer.share for name, peer in self._breakers.items() if name != worker and not peer.is_open]
        usual = sum(peers) / len(peers) if peers else 0.0
        return len(breaker.faults) >= self._limits.enough and breaker.share - usual >= self._limits.margin

    def _eject(self, breaker: _Breaker, now: float) -> None:
        breaker.open_until_s = now + min(self._limits.longest_pause_s, self._limits.pause_s * 2**breaker.ejections)
        breaker.ejections = min(breaker.ejections + 1, _MOST_EJECTIONS)

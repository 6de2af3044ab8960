"""When a turn that a worker takes now has its first token: its prompt's own time, and the delay by what is under way there.

Theory of operation. What counts is what the router sees, from the moment a turn may run to its first token; an engine's own figures leave
out its queue. Two things are learnt, each from the turns that show it:

    alone    a + b * new + c * new * prompt: from turns during which nothing else ran. So an overload leaves no trace here
    delay    by others = strain * (their prompts that are booked and not read yet + one step of the batch that runs)

The strain is a ratio of decaying sums, and all that this leaves out is in it: how an engine mixes prompts with steps, how many workers
share the load, what else their machines do. It is forgotten with time, too: who lets nobody in because of a delay learns of no other, so
after a while it must try again, as TCP does. And a first token that is overdue now counts before it comes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from router.admission.entry import NO_WAIT, Span, Work
from router.admission.fit import Quantiles, Regression

if TYPE_CHECKING:
    from router.admission.line import Ticket

_K, _M = 1e-3, 1e-6  # features in thousands and millions, to be near 1
_ALONE_PRIOR = (0.02, 0.1, 0.0)
_RATIO_PRIOR = (0.5, 0.8, 1.0, 1.25, 2.0)
_LATEST = 32
_MEMORY = 0.9
_FORGET_S = 5.0
_USUAL_RATE = 0.2
_LEAST_S = 1e-3


class _Begun(NamedTuple):
    """A turn that may run and has no first token: when it began, behind what delay without strain, and the how many-th it was."""

    now: float
    delay_s: float
    number: int
    is_alone: bool


class FirstTokens:
    """First tokens of one queue's turns."""

    def __init__(self) -> None:
        self._alone = Regression(_ALONE_PRIOR, memory=_MEMORY)
        self._ratios = Quantiles(_RATIO_PRIOR, _LATEST, enough=10)
        self._begun: dict[Ticket, _Begun] = {}
        self._booked = Work()
        self._number = 0
        self._actual_s = self._model_s = _LEAST_S
        self._learnt_s = -math.inf
        self._usual = Work(1, 0, 0)

    def begin(self, ticket: Ticket, now: float, batch_s: float, others: int) -> None:
        """A turn may run, where so many others do, whose steps take so long."""
        self._number += 1
        self._begun[ticket] = _Begun(now, self._delay_s(batch_s), self._number, others == 0)
        self._booked = self._booked.plus(ticket.work)

    def take(self, ticket: Ticket, now: float) -> bool:
        """A turn has its first token; returns whether it is news."""
        begun = self.end(ticket)
        if begun is None:
            return False
        self._look_at(ticket.work)
        self._learn(begun, ticket.work, now)
        return True

    def end(self, ticket: Ticket) -> _Begun | None:
        """A turn no longer waits for its first token."""
        begun = self._begun.pop(ticket, None)
        if begun is not None:
            self._booked = self._booked.plus(ticket.work, -1)
        return begun

    def alone(self, work: Work) -> Span:
        """Seconds to the first token of a turn that has the worker for itself."""
        return self._spread(self._alone.predict(_features(work)))

    @property
    def usual(self) -> Work:
        """A turn like those of late."""
        return self._usual

    def delay(self, now: float, batch_s: float) -> Span:
        """Seconds by which what is under way delays a turn that comes now; `batch_s` is a step of the batch that runs."""
        model_s = self._delay_s(batch_s)
        if not model_s:
            return NO_WAIT
        return self._spread(max(model_s * self._strain(now), self._overdue_s(now)))

    def _learn(self, begun: _Begun, work: Work, now: float) -> None:
        alone_s, actual_s = self._alone.predict(_features(work)), now - begun.now
        if not begun.is_alone:
            expected_s = alone_s + begun.delay_s * self._strain(begun.now)
            self._ratios.add(actual_s / max(expected_s, _LEAST_S))
            self._actual_s = _MEMORY * self._actual_s + max(0.0, actual_s - alone_s)
            self._model_s = _MEMORY * self._model_s + begun.delay_s
            self._learnt_s = now
        elif begun.number == self._number:  # nor did another come
            self._ratios.add(actual_s / max(alone_s, _LEAST_S))
            self._alone.observe(_features(work), actual_s)

    def _strain(self, now: float) -> float:
        """How much longer than modelled others delay a turn."""
        known = self._actual_s / max(self._model_s, _LEAST_S)
        return 1 + (known - 1) * math.exp(-max(0.0, now - self._learnt_s) / _FORGET_S)

    def _delay_s(self, batch_s: float) -> float:
        return self._alone.predict(_features(self._booked)) + batch_s if self._booked.turns else batch_s

    def _overdue_s(self, now: float) -> float:
        """For how long the turn that waits for longest has waited beyond its prompt's own time: the next will not fare better."""
        ticket = next(iter(self._begun), None)
        return 0.0 if ticket is None else now - self._begun[ticket].now - self._alone.predict(_features(ticket.work))

    def _look_at(self, work: Work) -> None:
        new = self._usual.new_tokens + _USUAL_RATE * (work.new_tokens - self._usual.new_tokens)
        attention = self._usual.attention + _USUAL_RATE * (work.attention - self._usual.attention)
        self._usual = Work(1, round(new), round(attention))

    def _spread(self, seconds: float) -> Span:
        low, high = min(1.0, self._ratios.at(0.1)), max(1.0, self._ratios.at(0.9))
        return Span(seconds * low, seconds, seconds * high)


def _features(work: Work) -> tuple[float, float, float]:
    return float(work.turns), work.new_tokens * _K, work.attention * _M

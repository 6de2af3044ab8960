"""Lets turns through to the workers, one for each slot. Sans-I/O: times come in, tickets come out; queue.py adds the waiting.

A turn comes (`arrive`), waits, and either runs (`grant`) until it ends (`release`), or goes unserved: its caller left (`withdraw`), its
deadline passed or is out of reach, or it waited too long. Work conserving: after any `grant` either nobody waits, or every slot is held, or
the workers have as much under way as the SLO bears: beyond that a turn begins sooner but has its first token no sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from router.admission.bars import Wait
from router.admission.entry import NO_WAIT, Entry, Outlook, QueueLimits, Span, Work, measure_work
from router.admission.estimate import Forecast, TimeModel
from router.admission.fair import Account, Prices
from router.admission.first import FirstTokens
from router.admission.line import Line, Ticket
from router.admission.refusals import deadline_passed, deadline_unreachable, queue_full, tenant_queue_full, waited_too_long
from router.errors import TidegateError
from router.model import Queued

_ENGINE_SHARE = 0.5
"""Of the SLO, so much may pass at the worker behind others; the rest is for the wait here and the turn's own prompt."""


class _Ghost(NamedTuple):
    """A turn that asked what it would meet, first in line. Where all are told of too long a wait nobody waits: this one is to find out."""

    wait: Wait
    foreseen_s: float


class Turnstile:
    """The turns of one model that wait and run."""

    def __init__(self, slots: Callable[[], int], times: TimeModel, limits: QueueLimits, prices: Prices) -> None:
        self._slots = slots
        self._times = times
        self._limits = limits
        self._line = Line(limits, prices)
        self._running = Work()
        self._ghost: _Ghost | None = None
        self._first = FirstTokens()

    @property
    def waiting(self) -> int:
        """Turns that wait."""
        return len(self._line)

    @property
    def waiting_work(self) -> Work:
        """The work of the turns that wait."""
        return self._line.work

    @property
    def running(self) -> int:
        """Slots that are held."""
        return self._running.turns

    @property
    def slots(self) -> int:
        """Turns that the workers run at once."""
        return self._slots()

    @property
    def accounts(self) -> Iterator[Account]:
        """Tenants that wait or run."""
        return (account for account in self._line.counters.accounts if account.waiting or account.running)

    def foresee(self, entry: Entry, now: float) -> Outlook:
        """What a turn would meet if it came now. Raises QUEUE_FULL and DEADLINE_UNREACHABLE when it would probably wait in vain."""
        prefill, delay = self._first.alone(measure_work(entry)), self._delay(now)
        if self._is_free(now):
            self._ghost = None
            return Outlook(NO_WAIT, prefill, delay)
        self._check_length(entry)
        wait = self._forecast().wait(self._line.ahead_of_new(entry, now))
        if not self._line and self._ghost is None:
            self._ghost = _Ghost(wait, now)
        if self._times.calibrated and wait.span.high > self._limits.longest_wait_s:
            raise queue_full(wait.span.mid)
        if self._is_hopeless(entry, wait.span, now):
            raise deadline_unreachable(wait.span.mid)
        return Outlook(wait.span, prefill, delay)

    def arrive(self, entry: Entry, now: float) -> Ticket:
        """Lets a turn through when a slot is free, else takes it into the queue. Raises QUEUE_FULL."""
        if self._is_free(now):
            ticket = self._line.pass_by(entry, now)
            self._run(ticket, now)
            return ticket
        self._check_length(entry)
        ticket = self._line.join(entry, now)
        last = now + self._limits.longest_wait_s
        ticket.deadline_s = last if entry.deadline_s is None else min(last, entry.deadline_s)
        return ticket

    def grant(self, now: float) -> list[Ticket]:
        """Those whose wait ends now: with a bill they run, with a refusal they are gone."""
        done: list[Ticket] = []
        while self._line and self._has_room(now):
            ticket = self._line.pop()
            self._run(ticket, now)
            if ticket.deadline_s <= now:
                self.withdraw(ticket)
                ticket.refusal = self._judge(ticket, self._forecast().wait(self._line.work), now)
            elif ticket.wait is not None:
                self._times.observe_wait(ticket.wait, now - ticket.arrived_s)
            done.append(ticket)
        return done

    def withdraw(self, ticket: Ticket) -> None:
        """The turn goes without having reached a worker; it costs nothing. Does nothing when it is gone."""
        if ticket.gone:
            return
        if ticket.bill is None:
            self._line.leave(ticket)
            ticket.gone = True
        else:
            ticket.bill.cancel()
            self._free(ticket)

    def release(self, ticket: Ticket, now: float) -> None:
        """The turn that ran has ended; it costs what it used. Does nothing when it is gone."""
        if not ticket.gone and ticket.bill is not None:
            ticket.bill.settle()
            self._free(ticket)
            self._learn_from_ghost(now)

    def take_first(self, ticket: Ticket, now: float) -> bool:
        """The turn has its first token. Returns whether that is news, and others may begin."""
        return self._first.take(ticket, now)

    def tell(self, ticket: Ticket) -> Queued:
        """Where a turn that just came waits, and for how long; its prediction is what the time model learns from."""
        ticket.wait = self._forecast().wait(self._line.ahead_of(ticket))
        return _tell(ticket.wait)

    def predict_first_token(self, now: float) -> float:
        """Seconds until a turn like those of late would have its first token, if it came now and all that wait went before it."""
        wait = NO_WAIT if self._is_free(now) else self._forecast().wait(self._line.work).span
        return wait.mid + self._first.alone(self._first.usual).mid + self._delay(now).mid

    def review(self, now: float) -> tuple[list[Ticket], list[tuple[Ticket, Queued]]]:
        """Looks at all that wait, in order of service: whom it refuses because time is over or too short, and what the others are told."""
        forecast = self._forecast()
        refused: list[Ticket] = []
        told: list[tuple[Ticket, Queued]] = []
        for ticket, ahead in self._line.all_ahead():
            wait = forecast.wait(ahead)
            ticket.refusal = self._judge(ticket, wait, now)
            if ticket.refusal is None:
                told.append((ticket, _tell(wait)))
            else:
                refused.append(ticket)
        for ticket in refused:
            self.withdraw(ticket)
        return refused, told

    def _learn_from_ghost(self, now: float) -> None:
        """A slot has come free: had the ghost waited, it would begin now, unless others wait, who teach more."""
        ghost, self._ghost = self._ghost, None
        if ghost is not None and self._is_free(now):
            self._times.observe_wait(ghost.wait, now - ghost.foreseen_s)

    def _check_length(self, entry: Entry) -> None:
        limit = self._limits.tenant_length
        if len(self._line) >= self._limits.length:
            raise queue_full(self._forecast().wait(self._line.work).span.mid)
        if self._line.counters.waiting_of(entry.tenant) >= limit:
            raise tenant_queue_full(limit, self._forecast().wait(self._line.work).span.mid)

    def _judge(self, ticket: Ticket, wait: Wait, now: float) -> TidegateError | None:
        """Why a turn must not wait on, if so; `wait` is what a caller who comes again should allow for."""
        deadline_s = ticket.entry.deadline_s
        if ticket.deadline_s <= now:
            return waited_too_long(wait.span.mid) if deadline_s is None or deadline_s > now else deadline_passed(wait.span.mid)
        return deadline_unreachable(wait.span.mid) if self._is_hopeless(ticket.entry, wait.span, now) else None

    def _is_hopeless(self, entry: Entry, wait: Span, now: float) -> bool:
        return entry.deadline_s is not None and self._times.calibrated and now + wait.low > entry.deadline_s

    def _is_free(self, now: float) -> bool:
        """Whether a turn that comes now goes at once."""
        return not self._line and self._has_room(now)

    def _has_room(self, now: float) -> bool:
        """Whether one turn more may run: a slot is free, and what is under way does not delay it beyond what the SLO bears."""
        running, slo_s = self._running.turns, self._limits.slo_s
        if not running or running >= self._slots() or slo_s is None:
            return running < self._slots()
        return self._delay(now).high <= _ENGINE_SHARE * slo_s

    def _delay(self, now: float) -> Span:
        return self._first.delay(now, self._batch_s())

    def _batch_s(self) -> float:
        """Seconds of a step of the turns that run."""
        step_s, sequence_s = self._times.step_weights
        return step_s + self._running.turns * sequence_s if self._running.turns else 0.0

    def _forecast(self) -> Forecast:
        # Under an SLO those that run are as many as it bears, when others wait.
        slots = self._slots()
        return self._times.forecast(self._running, slots if self._limits.slo_s is None else min(slots, max(1, self._running.turns)))

    def _run(self, ticket: Ticket, now: float) -> None:
        self._first.begin(ticket, now, self._batch_s(), self._running.turns)
        self._running = self._running.plus(ticket.work)

    def _free(self, ticket: Ticket) -> None:
        ticket.gone = True
        self._first.end(ticket)
        self._running = self._running.plus(ticket.work, -1)
        self._line.counters.end(ticket.account)


def _tell(wait: Wait) -> Queued:
    return Queued(wait.turns, wait.span.mid, wait.span.low, wait.span.high)

"""The queue of one model in front of its workers: order, fairness and bounds are the turnstile's; here turns wait and are told.

It hands out no more slots than the workers run at once, so that the engines' own queues stay empty and their order of arrival decides
nothing. There is no task: a slot that comes free is given on in the same call, and while anyone waits one timer tells all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import NamedTuple

from router.admission.entry import Entry, Outlook, QueueLimits
from router.admission.estimate import TimeModel, Timing
from router.admission.fair import Bill, Prices
from router.admission.line import Ticket
from router.admission.turnstile import Turnstile
from router.model import Queued

TICK_S = 0.4
"""How often a waiting turn hears of its place. Less than the half second that is promised, for a loop that is late."""

OnQueued = Callable[[int, float, float, float], None]
"""Takes turns in front, expected wait, and its lower and upper bar in seconds. Must not wait."""


class TenantView(NamedTuple):
    """A tenant's turns in a queue now, and its counter in tokens of service."""

    tenant: str
    waiting: int
    running: int
    counter: float


class _Waiter(NamedTuple):
    future: asyncio.Future[None]
    on_queued: OnQueued


class Slot:
    """A turn's right to run on a worker. Called from the frame loop; nothing here waits."""

    __slots__ = ("_bill", "_on_first", "_prompt_tokens")

    def __init__(self, bill: Bill, prompt_tokens: int, on_first: Callable[[], None]) -> None:
        self._bill = bill
        self._prompt_tokens = prompt_tokens
        self._on_first = on_first

    def take_first(self) -> None:
        """The worker produced its first token."""
        self._on_first()

    def produced(self, tokens: int) -> None:
        """The worker produced this many more tokens."""
        self._bill.add_output(tokens)

    def cached(self, tokens: int) -> None:
        """The worker told how many prompt tokens were in its cache."""
        self._bill.set_prompt(self._prompt_tokens - tokens)


class _Place:
    """The context of one turn: entered when it may run, left when it has ended."""

    __slots__ = ("_entry", "_on_queued", "_queue", "_ticket")

    def __init__(self, queue: AdmissionQueue, entry: Entry, on_queued: OnQueued) -> None:
        self._queue = queue
        self._entry = entry
        self._on_queued = on_queued
        self._ticket: Ticket | None = None

    async def __aenter__(self) -> Slot:
        self._ticket = ticket = await self._queue.enter(self._entry, self._on_queued)
        assert ticket.bill is not None, "a ticket that was let through has a bill"
        return Slot(ticket.bill, self._entry.prompt_tokens, partial(self._queue.take_first, ticket))

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._ticket is not None, "entered before it is left"
        self._queue.leave(self._ticket)


class AdmissionQueue:
    """The queue of one model. All calls come from one event loop.

    `slots` says how many turns the workers that are up run at once, those of this queue included; `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        slots: Callable[[], int],
        clock: Callable[[], float],
        times: TimeModel,
        limits: QueueLimits = QueueLimits(),  # noqa: B008 - frozen
        prices: Prices = Prices(),  # noqa: B008 - frozen
    ) -> None:
        self._turnstile = Turnstile(slots, times, limits, prices)
        self._times = times
        self._clock = clock
        self._waiters: dict[Ticket, _Waiter] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Turns that wait."""
        return self._turnstile.waiting

    @property
    def running(self) -> int:
        """Turns that hold a slot."""
        return self._turnstile.running

    @property
    def slots(self) -> int:
        """Turns that the workers that are up run at once."""
        return self._turnstile.slots

    @property
    def waiting_tokens(self) -> float:
        """Tokens that the turns that wait will cost: of their prompts what is not expected in a cache, and their answers as expected."""
        work = self._turnstile.waiting_work
        return work.new_tokens + work.output_tokens

    @property
    def busy_fraction(self) -> float:
        """The share of slots that are held; without any slot, 1 if somebody waits for one."""
        slots = self.slots
        return self.running / slots if slots else float(self.waiting > 0)

    def predict_first_token(self) -> float:
        """Seconds until a turn like those of late would have its first token, if it came now and all that wait went before it."""
        return self._turnstile.predict_first_token(self._clock())

    def view_tenants(self) -> list[TenantView]:
        """The tenants that wait or run, for operators."""
        return [TenantView(a.tenant, a.waiting, a.running, a.counter) for a in self._turnstile.accounts]

    def place(self, entry: Entry, on_queued: OnQueued) -> _Place:
        """`async with queue.place(...) as slot`: waits for a slot and holds it.

        A turn that has to wait gets `on_queued` at once and then every TICK_S. Leaving the wait, however it comes, gives the place up.
        Raises RESOURCE_EXHAUSTED: QUEUE_FULL, QUEUE_TIMEOUT, DEADLINE_PASSED, DEADLINE_UNREACHABLE.
        """
        return _Place(self, entry, on_queued)

    def foresee(self, entry: Entry) -> Outlook:
        """What a turn would meet if it came now. Raises RESOURCE_EXHAUSTED where `place` would only let it wait in vain."""
        return self._turnstile.foresee(entry, self._clock())

    def observe(self, timing: Timing) -> None:
        """Learns from a turn that ended how long the workers need."""
        self._times.observe(timing)

    def poke(self) -> None:
        """There may be more slots than before."""
        self._grant(self._clock())

    async def enter(self, entry: Entry, on_queued: OnQueued) -> Ticket:
        """Waits for a slot, which `leave` must give back. For `place`."""
        ticket = self._turnstile.arrive(entry, self._clock())
        if ticket.bill is None:
            await self._wait(ticket, on_queued)
        if ticket.refusal is not None:
            raise ticket.refusal
        return ticket

    def take_first(self, ticket: Ticket) -> None:
        """A turn has its first token; what it held back may begin. For `Slot`."""
        now = self._clock()
        if self._turnstile.take_first(ticket, now):
            self._grant(now)

    def leave(self, ticket: Ticket) -> None:
        """Gives the slot back and lets the next turn through."""
        now = self._clock()
        self._turnstile.release(ticket, now)
        self._grant(now)

    async def _wait(self, ticket: Ticket, on_queued: OnQueued) -> None:
        loop = asyncio.get_running_loop()
        waiter = self._waiters[ticket] = _Waiter(loop.create_future(), on_queued)
        if self._timer is None:
            self._timer = loop.call_later(TICK_S, self._tick)
        try:
            self._grant(self._clock())  # slots may have come without a poke
            if not waiter.future.done():
                on_queued(*self._turnstile.tell(ticket))
            await waiter.future
        except BaseException:
            # It may have been let through and cancelled in the same moment: then its slot goes to the next.
            self._turnstile.withdraw(ticket)
            self._grant(self._clock())
            raise
        finally:
            self._forget(ticket)

    def _forget(self, ticket: Ticket) -> None:
        del self._waiters[ticket]
        if not self._waiters and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _grant(self, now: float) -> None:
        while self._wake(self._turnstile.grant(now)):
            pass

    def _wake(self, tickets: list[Ticket]) -> bool:
        """Wakes those that wait. Returns whether one of them was cancelled and gave its slot back."""
        freed = False
        for ticket in tickets:
            future = self._waiters[ticket].future
            if future.done():
                self._turnstile.withdraw(ticket)
                freed = True
            else:
                future.set_result(None)
        return freed

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        now = self._clock()
        refused, told = self._turnstile.review(now)
        self._wake(refused)
        self._grant(now)
        for ticket, queued in told:
            _tell(self._waiters[ticket], queued)


def _tell(waiter: _Waiter, queued: Queued) -> None:
    if waiter.future.done():
        return
    try:
        waiter.on_queued(*queued)
    except Exception as error:
        # Ends that turn, and only that one.
        waiter.future.set_exception(error)

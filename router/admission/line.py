"""The turns that wait, in the order in which they will go.

Between tenants the smallest counter decides (fair.py). Among the turns of one tenant the priority does, and it ages: a turn is ranked by
its arrival plus its class's head start, so an interactive turn passes a batch turn only if it comes within that time after it. No turn is
ever moved, and the starvation bound needs no clock.

When a turn is its tenant's next one, the tenant's counter will have risen by the cost of the turns before it. That value is the turn's
start, and service goes by rising start. Each turn keeps the sums over its tenant's turns before it, so what lies ahead of a turn is a
search in each tenant's line, not a walk through the queue.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from router.admission.bars import Wait
from router.admission.entry import Entry, QueueLimits, Work, measure_work
from router.admission.fair import Account, Bill, Counters, Prices
from router.errors import TidegateError

NOTHING = Work()


class Ticket:
    """One turn from its arrival on. It waits until it has a bill (then it runs) or is `gone`; `refusal` says why it went unserved."""

    __slots__ = (
        "account",
        "arrived_s",
        "bill",
        "cost",
        "cost_before",
        "deadline_s",
        "entry",
        "gone",
        "rank",
        "refusal",
        "wait",
        "work",
        "work_before",
    )

    def __init__(self, entry: Entry, account: Account, work: Work, arrived_s: float) -> None:
        self.entry = entry
        self.account = account
        self.work = work
        self.arrived_s = arrived_s
        self.deadline_s = arrived_s
        self.rank = (arrived_s, 0)
        self.cost = 0.0
        self.cost_before = 0.0
        self.work_before = NOTHING
        self.wait: Wait | None = None
        self.bill: Bill | None = None
        self.refusal: TidegateError | None = None
        self.gone = False


class TenantLine:
    """The turns of one tenant that wait, by rank."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._turns: list[Ticket] = []

    def __len__(self) -> int:
        return len(self._turns)

    def put(self, ticket: Ticket) -> None:
        """Adds a turn at its rank."""
        insort(self._turns, ticket, key=_rank_of)
        at = len(self._turns) - 1
        self._sum_from(at if self._turns[at] is ticket else bisect_left(self._turns, ticket.rank, key=_rank_of))

    def take(self, ticket: Ticket) -> None:
        """Takes a turn out."""
        at = bisect_left(self._turns, ticket.rank, key=_rank_of)
        del self._turns[at]
        if at:
            self._sum_from(at)

    def first(self) -> Ticket:
        """The turn that goes first."""
        return self._turns[0]

    def starts(self) -> Iterator[tuple[float, Ticket]]:
        """All turns with their starts."""
        return ((self.start_of(turn), turn) for turn in self._turns)

    def start_of(self, ticket: Ticket) -> float:
        """The tenant's counter when this turn is its next one."""
        return self._account.counter + (ticket.cost_before - self._turns[0].cost_before) / self._account.weight

    def work_before(self, ticket: Ticket) -> Work:
        """The work of the tenant's turns before this one."""
        return ticket.work_before.plus(self._turns[0].work_before, -1)

    def before(self, rank: tuple[float, int]) -> tuple[float, Work]:
        """The start that a turn of this rank would have, and the work of the tenant's turns before it."""
        at = bisect_left(self._turns, rank, key=_rank_of)
        if at < len(self._turns):
            return self.start_of(self._turns[at]), self.work_before(self._turns[at])
        last = self._turns[-1]
        return self.start_of(last) + last.cost / self._account.weight, self.work_before(last).plus(last.work)

    def work_until(self, start: float, *, inclusive: bool) -> Work:
        """The work of the turns that start before this, or with it."""
        search = bisect_right if inclusive else bisect_left
        at = search(self._turns, start, key=self.start_of)
        if at == 0:
            return NOTHING
        last = self._turns[at - 1]
        return self.work_before(last).plus(last.work)

    def _sum_from(self, at: int) -> None:
        """Sums up what is before each turn. The first turn's sums are a base and not zero: taking from the front leaves the others'."""
        for before, turn in zip(self._turns[max(0, at - 1) :], self._turns[max(1, at) :], strict=False):
            turn.work_before = before.work_before.plus(before.work)
            turn.cost_before = before.cost_before + before.cost


class Line:
    """The turns of all tenants that wait. Sans-I/O."""

    def __init__(self, limits: QueueLimits, prices: Prices) -> None:
        self._limits = limits
        self._prices = prices
        self._counters = Counters(prices)
        self._lines: dict[Account, TenantLine] = {}
        self._work = NOTHING
        self._number = 0

    def __len__(self) -> int:
        return self._work.turns

    @property
    def work(self) -> Work:
        """The work of all turns that wait."""
        return self._work

    @property
    def counters(self) -> Counters:
        """The tenants' counters."""
        return self._counters

    def join(self, entry: Entry, now: float) -> Ticket:
        """Puts a turn in its place."""
        ticket = Ticket(entry, self._counters.join(entry.tenant, entry.weight), measure_work(entry), now)
        self._number += 1
        ticket.rank = (now + self._limits.head_start(entry.priority), self._number)
        ticket.cost = self._prices.of(ticket.work.new_tokens, entry.output_tokens)
        self._work = self._work.plus(ticket.work)
        if ticket.account not in self._lines:
            self._lines[ticket.account] = TenantLine(ticket.account)
        self._lines[ticket.account].put(ticket)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Takes out a turn that will not be served."""
        self._take(ticket)
        self._counters.leave(ticket.account)

    def pop(self) -> Ticket:
        """Takes the next turn and charges its tenant. Somebody must wait."""
        ticket = self._lines[self._counters.next()].first()
        self._take(ticket)
        self._dispatch(ticket)
        return ticket

    def pass_by(self, entry: Entry, now: float) -> Ticket:
        """A turn that goes at once, because nobody waits."""
        ticket = Ticket(entry, self._counters.join(entry.tenant, entry.weight), measure_work(entry), now)
        self._dispatch(ticket)
        return ticket

    def all_ahead(self) -> Iterator[tuple[Ticket, Work]]:
        """All turns in the order in which they will go, each with the work ahead of it, if nobody comes or leaves."""
        starts = (pair for account in self._counters.waiting for pair in self._lines[account].starts())
        ahead = NOTHING
        for _, ticket in sorted(starts, key=_start_of):
            yield ticket, ahead
            ahead = ahead.plus(ticket.work)

    def ahead_of(self, ticket: Ticket) -> Work:
        """The work ahead of one turn, as in `all_ahead`."""
        own = self._lines[ticket.account]
        return self._ahead(ticket.account, own.start_of(ticket), own.work_before(ticket))

    def ahead_of_new(self, entry: Entry, now: float) -> Work:
        """The work that would be ahead of a turn if it joined now."""
        account = self._counters.find(entry.tenant)
        if account is None or account not in self._lines:
            return self._ahead(account, self._counters.level_of(account), NOTHING)
        return self._ahead(account, *self._lines[account].before((now + self._limits.head_start(entry.priority), self._number + 1)))

    def _ahead(self, own: Account | None, start: float, ahead: Work) -> Work:
        """Adds the work of other tenants' turns that start before this one; of equal starts the tenant that waits for longer goes first."""
        is_earlier = True
        for account in self._counters.waiting:
            if account is own:
                is_earlier = False
            else:
                ahead = ahead.plus(self._lines[account].work_until(start, inclusive=is_earlier))
        return ahead

    def _dispatch(self, ticket: Ticket) -> None:
        ticket.bill = self._counters.dispatch(ticket.account, ticket.work.new_tokens, ticket.entry.output_tokens)

    def _take(self, ticket: Ticket) -> None:
        line = self._lines[ticket.account]
        line.take(ticket)
        self._work = self._work.plus(ticket.work, -1)
        if not line:
            del self._lines[ticket.account]


def _rank_of(ticket: Ticket) -> tuple[float, int]:
    return ticket.rank


def _start_of(pair: tuple[float, Ticket]) -> float:
    return pair[0]

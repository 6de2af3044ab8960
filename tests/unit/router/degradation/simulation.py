"""Two simulated pools, a flagship and a smaller model, behind real turnstiles and ladders; time is the simulation's own."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from router.admission.entry import Entry, Outlook, QueueLimits
from router.admission.estimate import TimeModel, Timing
from router.admission.fair import Prices
from router.admission.line import Ticket
from router.admission.turnstile import Turnstile
from router.degradation.ladder import Ladder, Prospect, Rung
from router.errors import TidegateError


class Arrival(NamedTuple):
    """A turn that comes at a time."""

    at_s: float
    entry: Entry
    hardness: float
    may_downgrade: bool


@dataclass(slots=True)
class Fate:
    """What became of a turn: the pool that took it, the wait it was told of, and when its first token came; or why it was refused."""

    arrival: Arrival
    pool: str = ""
    told_s: float = 0.0
    first_token_s: float | None = None
    refusal: TidegateError | None = None

    @property
    def ttft_s(self) -> float:
        """Seconds to the first token."""
        assert self.first_token_s is not None, "it was answered"
        return self.first_token_s - self.arrival.at_s


@dataclass(slots=True)
class Pool:
    """Slots that each take `prefill_s` for a turn's prompt and `step_s` for each token of its answer."""

    name: str
    slots: int
    prefill_s: float
    step_s: float
    ladder: Ladder
    limits: QueueLimits
    busy_s: float = 0.0
    times: TimeModel = field(default_factory=TimeModel)
    turnstile: Turnstile = field(init=False)

    def __post_init__(self) -> None:
        self.turnstile = Turnstile(lambda: self.slots, self.times, self.limits, Prices())

    def foresee(self, arrival: Arrival) -> Prospect:
        """What the turn would meet here."""
        try:
            return self.turnstile.foresee(arrival.entry, arrival.at_s)
        except TidegateError as error:
            return error


class Simulation:
    """Plays arrivals, and looks at the flagship's gate with each of them."""

    def __init__(self, flagship: Pool, small: Pool, seed: int = 1) -> None:
        self.flagship = flagship
        self.small = small
        self.fates: list[Fate] = []
        self.degraded: list[tuple[float, bool]] = []
        self._dice = random.Random(seed)
        self._tickets: dict[Ticket, Fate] = {}
        self._ends: list[tuple[float, int, Pool, Ticket, Timing | None]] = []
        self._number = 0

    def play(self, arrivals: Sequence[Arrival]) -> list[Fate]:
        """Plays all, to the last answer."""
        for arrival in arrivals:
            self._run_until(arrival.at_s)
            self.fates.append(self._settle(arrival))
            self.degraded.append((arrival.at_s, self.flagship.ladder.is_degraded(arrival.at_s)))
        self._run_until(float("inf"))
        return self.fates

    def _settle(self, arrival: Arrival) -> Fate:
        here, below = self.flagship.foresee(arrival), self.small.foresee(arrival)
        ladder, now = self.flagship.ladder, arrival.at_s
        has_lower = arrival.may_downgrade and self.small.ladder.takes(below, here, ladder.slo_s)
        fate = Fate(arrival)
        match ladder.decide(here, arrival.hardness, now, has_lower=has_lower):
            case Rung.REFUSE:
                assert isinstance(here, TidegateError)
                fate.refusal = here
            case Rung.DOWNGRADE:
                self._enter(self.small, below, fate)
            case _:
                self._enter(self.flagship, here, fate)
        return fate

    def _enter(self, pool: Pool, outlook: Prospect, fate: Fate) -> None:
        assert isinstance(outlook, Outlook)
        fate.pool, fate.told_s = pool.name, outlook.wait.high
        ticket = pool.turnstile.arrive(fate.arrival.entry, fate.arrival.at_s)
        self._tickets[ticket] = fate
        if ticket.bill is None:
            pool.turnstile.tell(ticket)
        else:
            self._begin(pool, ticket, fate.arrival.at_s)

    def _begin(self, pool: Pool, ticket: Ticket, now: float) -> None:
        if ticket.refusal is not None:
            self._tickets[ticket].refusal = ticket.refusal
            return
        prefill_s, tokens = pool.prefill_s * self._dice.uniform(0.8, 1.2), max(1, round(self._dice.gauss(40, 8)))
        decode_s = tokens * pool.step_s
        self._tickets[ticket].first_token_s = now + prefill_s
        pool.busy_s += prefill_s + decode_s
        self._put(now + prefill_s, pool, ticket, None)
        prompt = ticket.entry.prompt_tokens
        timing = Timing(prompt, prompt, tokens + 1, prefill_s, decode_s, pool.turnstile.running)
        self._put(now + prefill_s + decode_s, pool, ticket, timing)

    def _put(self, at: float, pool: Pool, ticket: Ticket, timing: Timing | None) -> None:
        """A turn's first token, or with a timing its end."""
        self._number += 1
        heapq.heappush(self._ends, (at, self._number, pool, ticket, timing))

    def _run_until(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            at, _, pool, ticket, timing = heapq.heappop(self._ends)
            if timing is None:
                pool.turnstile.take_first(ticket, at)
            else:
                pool.times.observe(timing)
                pool.turnstile.release(ticket, at)
            for granted in pool.turnstile.grant(at):
                self._begin(pool, granted, at)


def come_randomly(phases: Sequence[tuple[float, float]], *, may_downgrade: float = 1.0, seed: int = 1) -> Iterator[Arrival]:
    """Turns of three tenants, in phases of seconds and turns a second; a share of the turns may be downgraded."""
    dice, start = random.Random(seed), 0.0
    for length_s, per_second in phases:
        now = start
        while (now := now + dice.expovariate(per_second)) < start + length_s:
            entry = Entry(dice.choice("abc"), dice.randint(50, 300), 40.0)
            yield Arrival(now, entry, dice.random(), dice.random() < may_downgrade)
        start += length_s

"""A simulated engine with in-flight batching behind a turnstile: time moves by engine steps, every step gives each running turn a token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from router.admission.entry import Entry, QueueLimits
from router.admission.estimate import TimeModel, Timing
from router.admission.fair import Prices
from router.admission.line import Ticket
from router.admission.turnstile import Turnstile
from router.model import Queued


@dataclass(frozen=True)
class Arrival:
    """A turn that comes at a time, and the output it will have in truth."""

    at_s: float
    entry: Entry
    output_tokens: int


@dataclass
class Outcome:
    """What became of an arrival."""

    arrival: Arrival
    told: Queued | None = None
    begun_s: float | None = None
    first_s: float | None = None


@dataclass
class Running:
    """A turn in the batch."""

    ticket: Ticket
    output_tokens: int
    prefill_s: float
    begun_s: float
    produced: int = 0


@dataclass
class Engine:
    """`prefill_s` per new prompt token; a step takes `step_s` and `sequence_s` for each sequence."""

    slots: int = 8
    prefill_s: float = 1e-4
    step_s: float = 0.02
    sequence_s: float = 0.0005
    limits: QueueLimits = field(default_factory=QueueLimits)
    service: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.now = 0.0
        self.times = TimeModel()
        self.turnstile = Turnstile(lambda: self.slots, self.times, self.limits, Prices())
        self.batch: list[Running] = []
        self.let_through: list[Ticket] = []
        self.outcomes: dict[Ticket, Outcome] = {}

    def play(self, arrivals: Sequence[Arrival], until_s: float = float("inf")) -> list[Outcome]:
        """Runs the arrivals, which are in order of time; stops when all is done or at `until_s`."""
        coming = list(reversed(arrivals))
        while (coming or self.batch or self.turnstile.waiting) and self.now < until_s:
            if not self.batch and not self.turnstile.waiting:
                self.now = max(self.now, coming[-1].at_s)
            while coming and coming[-1].at_s <= self.now:
                self._arrive(coming.pop())
            self._step(self._begin())
        return list(self.outcomes.values())

    def _arrive(self, arrival: Arrival) -> None:
        ticket = self.turnstile.arrive(arrival.entry, self.now)
        outcome = self.outcomes[ticket] = Outcome(arrival)
        if ticket.bill is None:
            outcome.told = self.turnstile.tell(ticket)
        else:
            self.let_through.append(ticket)

    def _begin(self) -> float:
        """Lets turns through; returns how long their prompts take."""
        stall_s = 0.0
        tickets = self.let_through + self.turnstile.grant(self.now)
        self.let_through.clear()
        for ticket in tickets:
            if ticket.refusal is not None:
                continue
            outcome = self.outcomes[ticket]
            outcome.begun_s = self.now
            prefill_s = 0.002 + self.prefill_s * ticket.work.new_tokens
            self._serve(ticket.entry.tenant, ticket.work.new_tokens)
            self.batch.append(Running(ticket, outcome.arrival.output_tokens, prefill_s, self.now + stall_s + prefill_s))
            stall_s += prefill_s
        return stall_s

    def _step(self, stall_s: float) -> None:
        self.now += stall_s + self.step_s + self.sequence_s * len(self.batch)
        for running in self.batch:
            running.produced += 1
            if self.turnstile.take_first(running.ticket, self.now):
                self.outcomes[running.ticket].first_s = self.now
            self._serve(running.ticket.entry.tenant, 2)
            assert running.ticket.bill is not None
            running.ticket.bill.add_output(1)
        ended = [running for running in self.batch if running.produced == running.output_tokens]
        batch = len(self.batch)
        self.batch = [running for running in self.batch if running.produced < running.output_tokens]
        for running in ended:
            work = running.ticket.work
            decode_s = self.now - running.begun_s
            timing = Timing(work.new_tokens, running.ticket.entry.prompt_tokens, running.produced, running.prefill_s, decode_s, batch)
            self.times.observe(timing)
            self.turnstile.release(running.ticket, self.now)

    def _serve(self, tenant: str, cost: float) -> None:
        self.service[tenant] = self.service.get(tenant, 0.0) + cost

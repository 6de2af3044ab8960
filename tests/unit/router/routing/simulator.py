"""A small simulation: conversations over workers that have real prefix caches, routed by the router's own code.

Times follow the same law that admission's time model learns. A worker computes one prompt after the other, and its steps get slower the
more turns it runs. What is counted are cached tokens, as the workers' caches give them, not as the router guesses.
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from router.routing.book import Sums
from router.routing.chain import Chain
from router.routing.offer import Offer
from router.routing.policy import Policy, Rates, Request, State, WorkerState, choose
from router.routing.prefix import PrefixIndex

BLOCK = 32
SLOTS = 32
RATES = Rates(turn_s=0.005, token_s=5e-5, pair_s=0.0, step_s=0.012, sequence_s=1e-4)
ANSWER = 120


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation: its whole prompt, the answer that the next prompt will have, and when it comes."""

    at_s: float
    prompt: Chain
    answer: tuple[int, ...]


@dataclass(slots=True)
class SimWorker:
    """A worker: its cache (least recently used first, ends of chains before beginnings), its turns, and when its prefill is free."""

    blocks: int
    cache: OrderedDict[int, None] = field(default_factory=OrderedDict)
    turns: int = 0
    prefill_free_s: float = 0.0

    def run(self, turn: Turn) -> tuple[int, float]:
        """Begins a turn. Its cached tokens and how long it takes."""
        cached = self._use(turn.prompt)
        new = len(turn.prompt) - cached
        self.prefill_free_s = max(self.prefill_free_s, turn.at_s) + RATES.turn_s + new * RATES.token_s
        self.turns += 1
        return cached, self.prefill_free_s - turn.at_s + ANSWER * (RATES.step_s + self.turns * RATES.sequence_s)

    def end(self, turn: Turn) -> None:
        """Its answer is in the cache too."""
        self.turns -= 1
        self._use(turn.prompt.grow(turn.answer))

    def _use(self, chain: Chain) -> int:
        hashes, cached = chain.blocks(BLOCK), 0
        while cached < chain.count_reusable(BLOCK) and hashes[cached] in self.cache:
            cached += 1
        for block in reversed(hashes):
            self.cache[block] = None
            self.cache.move_to_end(block)
        while len(self.cache) > self.blocks:
            self.cache.popitem(last=False)
        return cached * BLOCK


@dataclass(slots=True)
class Fleet:
    """Workers and what the router keeps of them."""

    workers: dict[str, SimWorker]
    index: PrefixIndex = field(default_factory=PrefixIndex)
    booked: Sums = field(default_factory=Sums)

    def __post_init__(self) -> None:
        for name, worker in self.workers.items():
            self.index.join(name, BLOCK, worker.blocks)

    def choose(self, policy: Policy, turn: Turn) -> Offer:
        """As the router does it: match, price, pick and book, note."""
        cached = self.index.match(turn.prompt)
        state = State(
            [WorkerState(name, SLOTS, cached_tokens=cached[name], total_blocks=it.blocks) for name, it in self.workers.items()], RATES
        )
        request = Request(len(turn.prompt), ANSWER, turn.prompt.key)
        offer = choose(policy, state, request, self.booked)
        self.booked.change(offer.worker, offer.load, 1)
        self.index.insert(offer.worker, turn.prompt)
        return offer

    def end(self, offer: Offer, turn: Turn, cached: int) -> None:
        """The turn has ended on its worker."""
        self.workers[offer.worker].end(turn)
        self.booked.change(offer.worker, offer.load, -1)
        self.index.observe(offer.worker, offer.cached_tokens, cached)
        self.index.insert(offer.worker, turn.prompt.grow(turn.answer))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Shares of all prompt tokens: cached in truth, and as the router guessed; and the most turns that a worker ran at once."""

    hit_share: float
    guessed_share: float
    busiest: int


def play(policy: Policy, turns: list[Turn], workers: int, blocks: int) -> Outcome:
    """Runs the turns on so many workers with this many blocks each."""
    fleet = Fleet({f"10.0.0.{number}:8001": SimWorker(blocks) for number in range(workers)})
    running: list[tuple[float, int, Offer, int]] = []
    cached_total = guessed_total = busiest = 0
    for number, turn in enumerate(turns):
        while running and running[0][0] <= turn.at_s:
            _, ended, offer, cached = heapq.heappop(running)
            fleet.end(offer, turns[ended], cached)
        offer = fleet.choose(policy, turn)
        worker = fleet.workers[offer.worker]
        cached, takes_s = worker.run(turn)
        heapq.heappush(running, (turn.at_s + takes_s, number, offer, cached))
        cached_total, guessed_total, busiest = cached_total + cached, guessed_total + offer.cached_tokens, max(busiest, worker.turns)
    total = sum(len(turn.prompt) for turn in turns)
    return Outcome(cached_total / total, guessed_total / total, busiest)


def converse(dice: random.Random, *, talks: int, over_s: float) -> list[Turn]:
    """Conversations of four applications, each with a system prompt of its own, that begin within a time; most have several turns."""
    systems = [_write(dice, dice.randrange(300, 800)) for _ in range(4)]
    turns = [turn for _ in range(talks) for turn in _talk(dice, dice.choice(systems), dice.uniform(0, over_s))]
    return sorted(turns, key=lambda turn: turn.at_s)


def _talk(dice: random.Random, system: tuple[int, ...], at_s: float) -> Iterator[Turn]:
    chain = Chain(system)
    for _ in range(dice.randrange(1, 12)):
        chain = chain.grow(_write(dice, dice.randrange(40, 400)))
        answer = _write(dice, ANSWER)
        yield Turn(at_s, chain, answer)
        chain = chain.grow(answer)
        at_s += 4 + dice.expovariate(1 / 8)


def _write(dice: random.Random, tokens: int) -> tuple[int, ...]:
    return tuple(dice.randrange(100_000) for _ in range(tokens))

"""Which worker takes a turn: policies that price every worker, so that the cheapest can be taken and booked in one step.

KvAware is the one to use. Its price is in seconds, so that its parts can be weighed against each other without tuning:

    prefill of what is not cached                a + b * new + c * new * prompt        admission's time model
  + prefill of what is booked there and waits    b * booked new tokens
  + slower steps beside the turns there          output * e * turns                    e: seconds one more sequence adds to a step
  + wait when all slots are taken                (turns + 1 - slots) * hold / slots
  + KV pressure                                  0.15 s * k / (1 - k)                  k: share of KV blocks in use, this turn included

A cached prefix thus draws a turn by exactly the prefill time it saves, and a worker that is busier than that loses it: this turn goes
elsewhere and the next decides anew. No switch changes all turns' policy at once, as in routers that leave affinity when loads differ by a
threshold. The form is that of SMG's least_load (queued tokens over throughput, and convex KV pressure with its 0.15 s) with the prefill
time saved; Dynamo's cost is alike, in KV blocks. Between equals a hash of the prompt's beginning decides (rendezvous hashing, Thaler and
Ravishankar 1998, with a multiply-shift hash, Dietzfelbinger et al. 1997), so that routers that know nothing of each other agree.

The others are for comparison: RoundRobin, LeastLoaded (join the shortest queue), and TwoChoices (Mitzenmacher 2001: the less loaded of two
random ones, which keeps the longest queue at log log n instead of log n).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple, Protocol

from router.admission.estimate import TimeModel
from router.routing.offer import Booked, Offer, pick

PRESSURE_S = 0.15
_TIE_S = 1e-6 / 2**32
_WORD = 2**64 - 1


class Rates(NamedTuple):
    """Seconds that work takes on a model's workers: a prefill for each turn, new token, and pair of a new and any prompt token; a step, and
    what one more sequence adds to it."""

    turn_s: float
    token_s: float
    pair_s: float
    step_s: float
    sequence_s: float


def read_rates(times: TimeModel) -> Rates:
    """The rates as admission has learnt them."""
    _, sequence_s = times.step_weights
    return Rates(*times.prefill_weights, times.step_s, sequence_s)


class WorkerState(NamedTuple):
    """A worker when a turn comes: `turns` and `used_blocks` as it tells itself, and how much of this turn's prompt it has cached.

    `weight` is the share of its slots that it should use (slow start, or it said that it is full), `pace` how much longer than others it
    takes.
    """

    name: str
    slots: int
    turns: int = 0
    used_blocks: int = 0
    total_blocks: int = 0
    block_tokens: int = 32
    cached_tokens: int = 0
    weight: float = 1.0
    pace: float = 1.0


class State(NamedTuple):
    """What a policy decides by; workers that may not take turns are left out."""

    workers: Sequence[WorkerState]
    rates: Rates


class Request(NamedTuple):
    """A turn that needs a worker: its sizes in tokens, the answer's as expected, and a number that is the same for like prompts."""

    prompt_tokens: int
    output_tokens: int
    key: int


class Policy(Protocol):
    """Pure, but for the dice or place in line that some keep."""

    def price(self, state: State, request: Request) -> Sequence[Offer]:
        """Offers of the workers that may be chosen; none only when there are no workers."""


def choose(policy: Policy, state: State, request: Request, booked: Mapping[str, Booked]) -> Offer:
    """The worker that takes the turn. There must be one."""
    return pick(policy.price(state, request), booked)


class KvAware:
    """The least seconds, as told above."""

    def price(self, state: State, request: Request) -> Sequence[Offer]:
        """See Policy."""
        return [_price(worker, request, state.rates) for worker in state.workers]


def _price(worker: WorkerState, request: Request, rates: Rates) -> Offer:
    prompt, output, pace = request.prompt_tokens, request.output_tokens, worker.pace
    new = max(0, prompt - worker.cached_tokens)
    prefill_s = max(0.0, rates.turn_s + new * (rates.token_s + prompt * rates.pair_s))
    slots = max(1, int(worker.slots * worker.weight))
    return Offer(
        worker.name,
        pace * prefill_s + _break_tie(worker.name, request.key),
        pace * output * rates.sequence_s,
        pace * rates.token_s,
        pace * (prefill_s + output * rates.step_s) / slots,
        slots,
        PRESSURE_S,
        worker.turns,
        worker.used_blocks,
        worker.total_blocks,
        new,
        _count_blocks(worker, new + output),
        worker.cached_tokens,
    )


class LeastLoaded:
    """The worker with the fewest turns."""

    def price(self, state: State, request: Request) -> Sequence[Offer]:
        """See Policy."""
        return [_count(worker, request) for worker in state.workers]


class TwoChoices:
    """The one of two with fewer turns."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def price(self, state: State, request: Request) -> Sequence[Offer]:
        """See Policy."""
        pair = self._dice.sample(state.workers, min(2, len(state.workers)))
        return [_count(worker, request) for worker in pair]


class RoundRobin:
    """Each in turn."""

    def __init__(self) -> None:
        self._next = 0

    def price(self, state: State, request: Request) -> Sequence[Offer]:
        """See Policy."""
        self._next += 1
        return [_count(state.workers[self._next % len(state.workers)], request)]


def _count(worker: WorkerState, request: Request) -> Offer:
    new = max(0, request.prompt_tokens - worker.cached_tokens)
    return Offer(
        worker.name,
        fixed_s=_break_tie(worker.name, request.key),
        turn_s=1.0,
        turns=worker.turns,
        new_tokens=new,
        blocks=_count_blocks(worker, new + request.output_tokens),
        cached_tokens=worker.cached_tokens,
    )


def _count_blocks(worker: WorkerState, tokens: int) -> int:
    return -(-tokens // worker.block_tokens)


def _break_tie(worker: str, key: int) -> float:
    """At most a microsecond: decides between workers that cost the same, and nothing else."""
    return ((_place_of(worker) * (key | 1) & _WORD) >> 32) * _TIE_S


@lru_cache(maxsize=4096)
def _place_of(worker: str) -> int:
    return int.from_bytes(blake2b(worker.encode(), digest_size=8).digest())

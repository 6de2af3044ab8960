"""What a turn would cost on a worker, given what is booked there: the arithmetic between a policy and a book.

A policy makes an offer for each worker, once per turn. What is booked changes until the very moment of booking, so it is not part of the
offer; the book puts both together and takes the cheapest in one step, in memory here or in Redis (lua/place.lua, the same formula).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

_FULLEST = 0.99


class Booked(NamedTuple):
    """Load on a worker: turns, their new prompt tokens that wait for their prefill, and the KV blocks they will have at most."""

    turns: int = 0
    new_tokens: int = 0
    blocks: int = 0

    def plus(self, other: Booked, sign: int = 1) -> Booked:
        """Both together; with `sign` -1, without the other."""
        return Booked(self.turns + sign * other.turns, self.new_tokens + sign * other.new_tokens, self.blocks + sign * other.blocks)


NOTHING = Booked()


class Offer(NamedTuple):
    """One worker's price for one turn: `fixed_s` whatever is booked, `turn_s` for each turn there and `token_s` for each token before its
    prefill, `wait_s` for each turn beyond its `slots`, and `pressure_s` times k / (1 - k) for the share k of its KV blocks in use.

    `turns` and `used_blocks` are what the worker itself tells; of these and what is booked the larger counts. `new_tokens` and `blocks` are
    what the turn would add, and `cached_tokens` what it is expected to save.
    """

    worker: str
    fixed_s: float = 0.0
    turn_s: float = 0.0
    token_s: float = 0.0
    wait_s: float = 0.0
    slots: int = 0
    pressure_s: float = 0.0
    turns: int = 0
    used_blocks: int = 0
    total_blocks: int = 0
    new_tokens: int = 0
    blocks: int = 0
    cached_tokens: int = 0

    @property
    def load(self) -> Booked:
        """What the turn adds."""
        return Booked(1, self.new_tokens, self.blocks)


def cost_of(offer: Offer, booked: Booked) -> float:
    """Seconds the turn costs there."""
    turns = max(offer.turns, booked.turns)
    cost = offer.fixed_s + turns * offer.turn_s + booked.new_tokens * offer.token_s + max(0, turns + 1 - offer.slots) * offer.wait_s
    if offer.total_blocks:
        share = min(_FULLEST, (max(offer.used_blocks, booked.blocks) + offer.blocks) / offer.total_blocks)
        cost += offer.pressure_s * share / (1 - share)
    return cost


def pick(offers: Iterable[Offer], booked: Mapping[str, Booked]) -> Offer:
    """The cheapest; of equal ones the first."""
    return min(offers, key=lambda offer: cost_of(offer, booked.get(offer.worker, NOTHING)))

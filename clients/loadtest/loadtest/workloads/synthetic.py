"""Made-up callers: tenants of Zipf-distributed weight, each with a system prompt of its own, and conversations whose history grows.

A conversation is a partly open loop: conversations arrive whatever the server does, and within one the next question waits for the answer
and for the reader (Schroeder, Wierman, Harchol-Balter: Open versus closed, NSDI 2006). The history holds the server's own answers.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from loadtest.request import Message, Request
from loadtest.workloads.text import make_text, pick_tenant, zipf_weights


@dataclass(frozen=True, slots=True)
class Span:
    """A uniform choice of whole numbers, both ends included."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Span:
        """`100` or `50..200`. Raises ValueError."""
        low, _, high = text.partition("..")
        span = cls(int(low), int(high or low))
        if not 1 <= span.low <= span.high:
            raise ValueError(f"{text}: a length is 100 or 50..200")
        return span

    def pick(self, draw: random.Random) -> int:
        """One of them."""
        return draw.randint(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Shape:
    """What requests look like. Lengths are in tokens, about; `think_s` is the mean of an exponential distribution."""

    input_tokens: Span
    output_tokens: Span
    system_tokens: int = 0
    tenants: int = 1
    zipf: float = 1.1
    turns: Span = Span(1, 1)
    think_s: float = 1.0


def make_requests(shape: Shape, times: Iterable[float], seed: int) -> Iterator[Request]:
    """A conversation for each of `times`; with one turn, a request. Endless for endless times."""
    weights = zipf_weights(shape.tenants, shape.zipf)
    number = 0
    for at in times:
        draw = random.Random(f"{seed} conversation {number}")
        tenant = pick_tenant(weights, draw)
        system = _system_prompt(shape, tenant, seed)
        first = None
        for turn in reversed(range(shape.turns.pick(draw))):
            first = _make_turn(shape, number + turn, tenant, draw, first)
        assert first is not None, "a conversation has a turn"
        number += sum(1 for _ in first.with_follow_ups())
        yield replace(first, at=at, messages=(*system, *first.messages))


def _make_turn(shape: Shape, number: int, tenant: str, draw: random.Random, follow_up: Request | None) -> Request:
    """A follow-up; the first of a conversation is turned into one that is not by its caller."""
    think_s = draw.expovariate(1 / shape.think_s) if shape.think_s else 0.0
    question = Message("user", make_text(shape.input_tokens.pick(draw), draw))
    return Request(number, think_s, (question,), shape.output_tokens.pick(draw), tenant, follow_up)


def _system_prompt(shape: Shape, tenant: str, seed: int) -> tuple[Message, ...]:
    if not shape.system_tokens:
        return ()
    return (Message("system", make_text(shape.system_tokens, random.Random(f"{seed} system of {tenant}"))),)

"""Requests that kill workers. One that was running when a worker was lost is a suspect; after the second loss it is tried no more. Pure.

A request that crashes the engine would otherwise go from worker to worker and take down all of them. Most who run on a worker that dies are
innocent, so suspicion is narrow: an engine that was producing tokens for some dies, if of a request, then of one that it had just begun.
If there were any without a token yet, they alone are suspects. A turn that completes is none any more, and suspicion ends with time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from struct import pack
from typing import NamedTuple


class Suspect(NamedTuple):
    """A request that ran on a worker when it was lost: its digest, and whether it had had a token there."""

    digest: bytes
    has_tokens: bool


def digest(tenant: str, prompt: Sequence[int]) -> bytes:
    """Names a request without keeping its prompt; equal prompts of one tenant are one request. Takes 50 µs for 4,096 tokens."""
    return blake2b(pack(f"{len(prompt)}i", *prompt), key=blake2b(tenant.encode(), digest_size=32).digest(), digest_size=16).digest()


class Quarantine:
    """Suspects of one model. `losses` of workers make a request one that is refused, for `keep_s`; at most `length` suspects are known."""

    def __init__(self, *, losses: int = 2, keep_s: float = 600.0, length: int = 1024) -> None:
        self._losses = losses
        self._keep_s = keep_s
        self._length = length
        self._known: OrderedDict[bytes, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def suspect(self, running: Iterable[Suspect], now: float) -> None:
        """A worker was lost while these ran on it."""
        suspects = list(running)
        fresh = [it for it in suspects if not it.has_tokens]
        for name in {it.digest for it in fresh or suspects}:
            self._known[name] = self._count(name, now) + 1, now
            self._known.move_to_end(name)
        while len(self._known) > self._length:
            self._known.popitem(last=False)

    def clear(self, name: bytes) -> None:
        """The request has completed."""
        self._known.pop(name, None)

    def holds(self, name: bytes, now: float) -> bool:
        """Whether the request is to be tried no more."""
        return self._count(name, now) >= self._losses

    def _count(self, name: bytes, now: float) -> int:
        losses, last_s = self._known.get(name, (0, now))
        return losses if now - last_s < self._keep_s else 0

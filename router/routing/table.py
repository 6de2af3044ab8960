"""The table of one model's workers: who is there, who takes turns, and how many. Pure.

    (discovered) ──► serving ──(drained)──► draining ──(no more)──► serving
                        │                    │
                        └─ no longer there ──┴──► leaving ──(its turns have ended, or had their time)──► gone
                                                     └────────── there again ──► serving

A worker that leaves or drains gets no new turns, and those that it runs go on. Which are drained is said by address, so a worker that comes
back, or comes at all, is as it was said. A worker that has come up is warmed slowly: its caches are
cold, and the turns it would draw because it is empty would all come at once. Its weight rises from a tenth to one within a while, measured
against the others': if all are new, none is held back. (Slow start as in Envoy.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Phase(Enum):
    """Whether a worker gets turns."""

    SERVING = "serving"
    DRAINING = "draining"
    LEAVING = "leaving"


class Changes(NamedTuple):
    """What an update changed, by address: workers that are new, and workers that began to leave."""

    joined: list[str]
    leaving: list[str]


@dataclass(slots=True)
class _Entry:
    """`left_s` is when the worker was no longer there, `up_s` since when it takes generations; None is not so."""

    left_s: float | None = None
    up_s: float | None = None


class WorkerTable:
    """The workers by address. Times are seconds of one monotonic clock."""

    def __init__(self, *, slow_start_s: float = 30.0, least_weight: float = 0.1) -> None:
        self._slow_start_s = slow_start_s
        self._least_weight = least_weight
        self._entries: dict[str, _Entry] = {}
        self._drained: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def update(self, addresses: Iterable[str], now: float) -> Changes:
        """These are all workers there are now. One that comes back while it is leaving goes on as before."""
        present = set(addresses)
        joined = sorted(present - self._entries.keys())
        leaving = sorted(address for address in self._entries.keys() - present if self._entries[address].left_s is None)
        for address in leaving:
            self._entries[address].left_s = now
        for address in present & self._entries.keys():
            self._entries[address].left_s = None
        self._entries.update((address, _Entry()) for address in joined)
        return Changes(joined, leaving)

    def set_drained(self, addresses: Iterable[str]) -> None:
        """Workers at these addresses get no new turns, those that are there and those that will come; all others do."""
        self._drained = frozenset(addresses)

    def note(self, address: str, now: float, *, up: bool) -> None:
        """A worker takes generations, or does no more."""
        if entry := self._entries.get(address):
            entry.up_s = (now if entry.up_s is None else entry.up_s) if up else None

    def find_phase(self, address: str) -> Phase | None:
        """The phase of a worker; None when there is none."""
        entry = self._entries.get(address)
        if entry is None:
            return None
        if entry.left_s is not None:
            return Phase.LEAVING
        return Phase.DRAINING if address in self._drained else Phase.SERVING

    def list_serving(self) -> list[str]:
        """Workers that are up and get turns. May be called from any thread."""
        up = [address for address, entry in tuple(self._entries.items()) if entry.up_s is not None]
        return [address for address in up if self.find_phase(address) is Phase.SERVING]

    def weigh(self, serving: Iterable[str], now: float) -> dict[str, float]:
        """The share of its slots that each of these workers should be given."""
        warmth = {address: self._measure_warmth(self._entries[address], now) for address in serving}
        warmest = max(warmth.values(), default=1.0)
        return {address: warm / warmest for address, warm in warmth.items()}

    def remove_gone(self, count_turns: Callable[[str], int], now: float, grace_s: float) -> list[str]:
        """Forgets workers that have left and run no turns, or have had `grace_s` for them. Returns which."""
        leaving = [(address, entry.left_s) for address, entry in self._entries.items() if entry.left_s is not None]
        gone = [address for address, left_s in leaving if now - left_s >= grace_s or not count_turns(address)]
        for address in gone:
            del self._entries[address]
        return gone

    def _measure_warmth(self, entry: _Entry, now: float) -> float:
        up_for_s = now - entry.up_s if entry.up_s is not None else 0.0
        return max(self._least_weight, min(1.0, up_for_s / self._slow_start_s)) if self._slow_start_s else 1.0

"""What was produced for routers that are gone, kept until one of them, or another, takes it over.

A router tells with each generation whom it is for, as a text that this worker does not read. When its lane breaks, the worker alone knows
how many tokens were made; a receipt says so, and waits for a router of the same name, which then charges exactly that. One that nobody
of that name asks for within `WAIT_S` goes to any router: a router that never comes back is charged by its neighbours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

WAIT_S = 60.0
_KEPT = 10_000


@dataclass(slots=True)
class Receipt:
    """Tokens made for one generation; `account` is the router's own text about it."""

    account: str
    tokens: int = 0
    cached_tokens: int | None = None


class Receipts:
    """Receipts by router, oldest first. Beyond ten thousand the oldest are dropped."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, str, Receipt]] = deque(maxlen=_KEPT)

    def put(self, router: str, receipts: Iterable[Receipt], now: float) -> None:
        """Keeps them from `now` on, monotonic seconds."""
        self._kept.extend((now, router, receipt) for receipt in receipts if receipt.account)

    def take(self, router: str, now: float) -> list[Receipt]:
        """Those of a router, and those that have waited long enough for their own."""
        if not self._kept:
            return []
        taken = [receipt for at, owner, receipt in self._kept if owner == router or now - at > WAIT_S]
        rest = [kept for kept in self._kept if not (kept[1] == router or now - kept[0] > WAIT_S)]
        self._kept.clear()
        self._kept.extend(rest)
        return taken

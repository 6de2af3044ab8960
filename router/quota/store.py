"""What keeps the counters: the port between the quota and its stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from router.quota.limits import Amounts, Bound, Bounds

TURN_RETRY_MS = 1_000
"""When to ask again for one of the turns at once: nobody knows when a running turn ends."""


@dataclass(frozen=True, slots=True)
class Granted:
    """It is booked. `left` is what each bound has left, in their order; empty when the store cannot tell."""

    left: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing is booked. Of the bounds that refuse, the one that will refuse longest; `wait_ms` None is for ever."""

    bound: Bound
    wait_ms: int | None


class StoreAway(Exception):
    """The store did not answer in time, or not sensibly. `maybe_done`: what was asked was sent, so it may have been done."""

    def __init__(self, *, maybe_done: bool) -> None:
        super().__init__("the quota store is away")
        self.maybe_done = maybe_done


class Store(Protocol):
    """Each call is one atomic decision, known by the hold's id and safe to repeat."""

    async def reserve(self, hold_id: str, bounds: Bounds, amounts: Amounts, read_counted: Callable[[], Amounts]) -> Granted | Refused:
        """Books the amounts and a turn under all bounds, or nothing. `read_counted` tells at any time what the turn has used so far.
        Raises StoreAway."""

    async def extend(self, hold_id: str, bounds: Bounds, more: Amounts) -> Granted | Refused:
        """Books more under all bounds, or nothing. Raises StoreAway."""

    async def settle(self, hold_id: str, bounds: Bounds, actual: Amounts) -> None:
        """Makes the hold's bookings come to `actual` and ends its turn, the first time it is called for the hold. Never raises."""

"""What a turn has booked, and what must change so that it comes to what the turn used. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from router.quota.limits import Amounts


@dataclass(frozen=True, slots=True)
class Booking:
    """Amounts booked at a moment; negative ones are given back to that moment's slots."""

    at_ms: int
    amounts: Amounts


def find_changes(bookings: Sequence[Booking], actual: Amounts, now_ms: int) -> list[Booking]:
    """Changes after which the bookings sum to `actual`: too much is given back where it was booked, the latest first; what lacks is
    booked now, whatever the limits say, because it was used."""
    excess = sum_up(bookings) - actual
    changes = []
    for booking in reversed(bookings):
        back = excess.within(booking.amounts)
        if back:
            excess -= back
            changes.append(Booking(booking.at_ms, Amounts() - back))
    if excess:
        changes.append(Booking(now_ms, Amounts() - excess))
    return changes


def sum_up(bookings: Sequence[Booking]) -> Amounts:
    """The sum of all bookings."""
    return sum((booking.amounts for booking in bookings), Amounts())

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
    excess = [booked - used for booked, used in zip(sum_up(bookings).as_list(), actual.as_list(), strict=True)]
    changes = []
    for booking in reversed(bookings):
        back = [max(0, min(amount, over)) for amount, over in zip(booking.amounts.as_list(), excess, strict=True)]
        excess = [over - given for over, given in zip(excess, back, strict=True)]
        changes.append(Booking(booking.at_ms, Amounts(*(-amount for amount in back))))
    changes.append(Booking(now_ms, Amounts(*(max(0, -over) for over in excess))))
    return [change for change in changes if change.amounts]


def sum_up(bookings: Sequence[Booking]) -> Amounts:
    """The sum of all bookings."""
    return sum((booking.amounts for booking in bookings), Amounts())

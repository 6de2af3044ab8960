"""Numbers between bounds, as grammars of digits.

A whole number has at most 15 digits, which a double holds exactly. A number between bounds is whole or has one fixed count of decimals, for
then "between" is a question about digit strings of equal length.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

from server.guides import characters
from server.guides.grammar import Chars, Literal, Node, Repeat, choice, optional, sequence
from server.guides.limits import MAX_DIGITS

DIGIT = Chars(characters.of("0123456789"))
_NONZERO = Chars(characters.of("123456789"))
_LARGEST = 10**MAX_DIGITS - 1

_WHOLE = choice((Literal("0"), sequence((_NONZERO, Repeat(DIGIT, 0, MAX_DIGITS - 1)))))
_FRACTION = sequence((Literal("."), Repeat(DIGIT, 1, MAX_DIGITS)))
_EXPONENT = sequence((Chars(characters.of("eE")), optional(Chars(characters.of("+-"))), _NONZERO, optional(DIGIT)))
INTEGER = choice((Literal("0"), sequence((optional(Literal("-")), _NONZERO, Repeat(DIGIT, 0, MAX_DIGITS - 1)))))
NUMBER = sequence((optional(Literal("-")), _WHOLE, optional(_FRACTION), optional(_EXPONENT)))


def between(low: Fraction | None, high: Fraction | None, decimals: int) -> Node | None:
    """The numbers from low to high, both included, with so many decimals; None if there are none."""
    scale = 10**decimals
    least = -_LARGEST if low is None else max(-_LARGEST, ceil(low * scale))
    most = _LARGEST if high is None else min(_LARGEST, floor(high * scale))
    options: list[Node] = []
    if most >= 0:
        options += _magnitudes(max(least, 0), most, decimals)
    if least < 0:
        options += [sequence((Literal("-"), magnitude)) for magnitude in _magnitudes(max(-most, 1), -least, decimals)]
    return choice(options) if options else None


def _magnitudes(low: int, high: int, point: int) -> list[Node]:
    """Digit strings of the whole numbers from low to high, with a decimal point before the last `point` digits: by length."""
    options: list[Node] = []
    complete: list[int] = []
    shortest = point + 1
    for length in range(shortest, max(shortest, len(str(high))) + 1):
        first = 0 if length == shortest else 10 ** (length - 1)
        last = 10**length - 1
        if length > shortest and low <= first and last <= high:
            complete.append(length)
        elif max(low, first) <= min(high, last):
            options.append(_same_length(str(max(low, first)).zfill(length), str(min(high, last)).zfill(length), point))
    if complete:
        digits = Repeat(DIGIT, complete[0] - 1 - point, complete[-1] - 1 - point)
        options.append(sequence((_NONZERO, digits, _all_digits(point, point))))
    return options


def _same_length(low: str, high: str, point: int) -> Node:
    """The digit strings from low to high, which are equally long."""
    if not low:
        return Literal("")
    rest = len(low) - 1
    zeros, nines = "0" * rest, "9" * rest
    first, last = int(low[0]), int(high[0])
    if first == last:
        return sequence((_digit(first, last, rest, point), _same_length(low[1:], high[1:], point)))
    options: list[Node] = []
    if low[1:] != zeros:
        options.append(sequence((_digit(first, first, rest, point), _same_length(low[1:], nines, point))))
        first += 1
    if high[1:] != nines:
        options.append(sequence((_digit(last, last, rest, point), _same_length(zeros, high[1:], point))))
        last -= 1
    if first <= last:
        options.append(sequence((_digit(first, last, rest, point), _all_digits(rest, point))))
    return choice(options)


def _digit(first: int, last: int, rest: int, point: int) -> Node:
    """A digit that `rest` others follow, and the decimal point before it where it belongs."""
    digit = Literal(str(first)) if first == last else Chars(((0x30 + first, 0x30 + last),))
    return sequence((Literal("."), digit)) if point and rest + 1 == point else digit


def _all_digits(count: int, point: int) -> Node:
    """Any so many digits, the last of a number, and the decimal point before or among them where it belongs."""
    if not 0 < point <= count:
        return Repeat(DIGIT, count, count)
    return sequence((Repeat(DIGIT, count - point, count - point), Literal("."), Repeat(DIGIT, point, point)))

"""Numbers between bounds, as grammars of digits.

A whole number has at most 15 digits, which a double holds exactly, and so has a fraction. A number between bounds has no exponent: it is
compared digit by digit, the whole part with those of the same length.
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
BOUND_DECIMALS = 7
"""Of a bound, and one more where it is excluded itself."""
_SMALLEST = Fraction(1, 10**BOUND_DECIMALS)

_WHOLE = choice((Literal("0"), sequence((_NONZERO, Repeat(DIGIT, 0, MAX_DIGITS - 1)))))
_FRACTION = sequence((Literal("."), Repeat(DIGIT, 1, MAX_DIGITS)))
_EXPONENT = sequence((Chars(characters.of("eE")), optional(Chars(characters.of("+-"))), _NONZERO, optional(DIGIT)))
INTEGER = choice((Literal("0"), sequence((optional(Literal("-")), _NONZERO, Repeat(DIGIT, 0, MAX_DIGITS - 1)))))
NUMBER = sequence((optional(Literal("-")), _WHOLE, optional(_FRACTION), optional(_EXPONENT)))


def integers_between(low: Fraction | None, high: Fraction | None) -> Node | None:
    """The whole numbers from low to high, both included; None if there are none."""
    least = -_LARGEST if low is None else max(-_LARGEST, ceil(low))
    most = _LARGEST if high is None else min(_LARGEST, floor(high))
    options = _wholes(max(least, 0), most)
    options += [sequence((Literal("-"), whole)) for whole in _wholes(max(-most, 1), -least)]
    return choice(options) if options else None


def numbers_between(low: Fraction | None, high: Fraction | None) -> Node | None:
    """The numbers from low to high, both included, with any decimals; None if there are none. Bounds have at most BOUND_DECIMALS."""
    options: list[Node] = []
    if high is None or high >= 0:
        options += _magnitudes(max(low or Fraction(), Fraction()), high)
    if low is None or low < 0:
        least = Fraction() if high is None else -high
        options += [sequence((Literal("-"), it)) for it in _magnitudes(max(least, _SMALLEST), None if low is None else -low)]
    return choice(options) if options else None


def _magnitudes(low: Fraction, high: Fraction | None) -> list[Node]:
    """Numbers from low, which is not negative, to high: by what their whole part leaves to their decimals."""
    if low > min(_LARGEST, _LARGEST if high is None else high):
        return []
    first, low_decimals = _split(low)
    last, high_decimals = (_LARGEST, None) if high is None or high > _LARGEST else _split(high)
    if first == last:
        return [sequence((Literal(str(first)), _decimals(low_decimals, high_decimals)))]
    options: list[Node] = []
    if low_decimals:
        options.append(sequence((Literal(str(first)), _decimals(low_decimals, None))))
        first += 1
    if high_decimals is not None:
        options.append(sequence((Literal(str(last)), _decimals("", high_decimals))))
        last -= 1
    wholes = _wholes(first, last)
    return [*options, sequence((choice(wholes), _decimals("", None)))] if wholes else options


def _split(bound: Fraction) -> tuple[int, str]:
    """A bound's whole part and its decimals, without zeros behind them."""
    whole, rest = divmod(int(bound * 10**BOUND_DECIMALS), 10**BOUND_DECIMALS)
    return whole, str(rest).zfill(BOUND_DECIMALS).rstrip("0")


def _decimals(low: str, high: str | None) -> Node:
    """Decimals from low to high, which may be no bound, with the point before them; none where that will do."""
    some = sequence((Literal("."), _digits(low, high, MAX_DIGITS)))
    return some if low else optional(some)


def _digits(low: str, high: str | None, room: int) -> Node:
    """One digit or more that are such decimals. Those that are left out are zeros."""
    if high == "":
        return Repeat(Literal("0"), 1, room)
    if not low and high is None:
        return Repeat(DIGIT, 1, room)
    first, last = int(low[:1] or 0), int(high[0]) if high else 9
    if first == last:
        return _digit_then(first, low[1:], high and high[1:], room)
    options: list[Node] = []
    if low:
        options.append(_digit_then(first, low[1:], None, room))
        first += 1
    if high:
        options.append(_digit_then(last, "", high[1:], room))
        last -= 1
    if first <= last:
        options.append(sequence((_digit(first, last), Repeat(DIGIT, 0, room - 1))))
    return choice(options)


def _digit_then(digit: int, low: str, high: str | None, room: int) -> Node:
    more = _digits(low, high, room - 1)
    return sequence((Literal(str(digit)), more if low else optional(more)))


def _wholes(low: int, high: int) -> list[Node]:
    """Digit strings of the whole numbers from low to high: by length."""
    options: list[Node] = []
    complete: list[int] = []
    for length in range(1, len(str(max(high, 0))) + 1):
        first, last = 0 if length == 1 else 10 ** (length - 1), 10**length - 1
        if length > 1 and low <= first and last <= high:
            complete.append(length)
        elif max(low, first) <= min(high, last):
            options.append(_same_length(str(max(low, first)).zfill(length), str(min(high, last)).zfill(length)))
    if complete:
        options.append(sequence((_NONZERO, Repeat(DIGIT, complete[0] - 1, complete[-1] - 1))))
    return options


def _same_length(low: str, high: str) -> Node:
    """The digit strings from low to high, which are equally long."""
    if not low:
        return Literal("")
    rest = len(low) - 1
    first, last = int(low[0]), int(high[0])
    if first == last:
        return sequence((_digit(first, last), _same_length(low[1:], high[1:])))
    options: list[Node] = []
    if low[1:] != "0" * rest:
        options.append(sequence((_digit(first, first), _same_length(low[1:], "9" * rest))))
        first += 1
    if high[1:] != "9" * rest:
        options.append(sequence((_digit(last, last), _same_length("0" * rest, high[1:]))))
        last -= 1
    if first <= last:
        options.append(sequence((_digit(first, last), Repeat(DIGIT, rest, rest))))
    return choice(options)


def _digit(first: int, last: int) -> Node:
    return Literal(str(first)) if first == last else Chars(((0x30 + first, 0x30 + last),))

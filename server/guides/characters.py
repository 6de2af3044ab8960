"""Sets of characters: sorted, disjoint ranges of code points, both ends included.

The alphabet leaves out U+0000, which would end the engine's grammar text, and surrogates, which no UTF-8 text holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]

ALPHABET: Ranges = ((0x1, 0xD7FF), (0xE000, 0x10FFFF))


def unite(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Their union. Ends need not be in order of one another, but each low end must not be above its high end."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def intersect(left: Ranges, right: Ranges) -> Ranges:
    """What both hold."""
    return tuple(
        (max(low, other_low), min(high, other_high))
        for low, high in left
        for other_low, other_high in right
        if max(low, other_low) <= min(high, other_high)
    )


def complement(ranges: Ranges) -> Ranges:
    """The rest of the alphabet."""
    edges = [-1, *(edge for low, high in ranges for edge in (low - 1, high + 1)), 0x110000]
    gaps = tuple((low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low <= high)
    return intersect(gaps, ALPHABET)


def of(characters: str) -> Ranges:
    """The characters of a text."""
    return unite((ord(character), ord(character)) for character in characters)


def size(ranges: Ranges) -> int:
    """How many characters it holds."""
    return sum(high - low + 1 for low, high in ranges)


@dataclass(frozen=True, slots=True)
class Shorthand:
    r"""What `\s` and its kin mean: `sure` in every dialect (Python's re.ASCII, ECMAScript, xgrammar), `possible` in one of them.

    A guide's text then conforms whoever checks it: a class takes what is sure, and a negated class leaves out what is possible.
    """

    sure: Ranges
    possible: Ranges

    def negate(self) -> Shorthand:
        """The capital letter's meaning."""
        return Shorthand(complement(self.possible), complement(self.sure))


_DIGIT = of("0123456789")
_WORD = unite([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
_SPACE = of("\t\n\v\f\r ")
_ANY_SPACE = unite([*_SPACE, (0x1C, 0x1F), *of("\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"), (0x2000, 0x200A)])
_LOWER = {"d": Shorthand(_DIGIT, _DIGIT), "w": Shorthand(_WORD, _WORD), "s": Shorthand(_SPACE, _ANY_SPACE)}

SHORTHANDS = {**_LOWER, **{letter.upper(): meaning.negate() for letter, meaning in _LOWER.items()}}
DOT = complement(of("\n\r\u2028\u2029"))

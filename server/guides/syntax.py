r"""What regexes and grammars write alike: escapes, character classes and quantifiers.

`\xHH` is two hexadecimal digits and `\uHHHH` four, as in ECMAScript, Python and llama.cpp; xgrammar itself would read more after `\x`.
"""

from __future__ import annotations

import re

from server.guides.characters import ALPHABET, SHORTHANDS, Shorthand, intersect, unite
from server.guides.cursor import Cursor
from server.guides.grammar import Chars, Node, Repeat
from server.guides.limits import MAX_COUNT

_CONTROLS = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C, "v": 0x0B}
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})")
_QUANTIFIER = re.compile(r"([*+?])|\{([0-9]{1,9})(?:(,)([0-9]{1,9})?)?\}")
_SYMBOLS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def read_escape(cursor: Cursor) -> int | Shorthand:
    r"""Reads what follows a backslash: a code point, or a set such as `\d`."""
    if found := cursor.match(_HEX):
        return int(found[found.lastindex or 0], 16)
    letter = cursor.peek()
    if letter in _CONTROLS or letter in SHORTHANDS:
        cursor.at += 1
        return _CONTROLS.get(letter) or SHORTHANDS[letter]
    if not letter.isascii() or not letter.isprintable() or letter.isalnum() or not letter:
        raise cursor.refuse("this escape is not supported")
    cursor.at += 1
    return ord(letter)


def check_character(cursor: Cursor, code: int) -> str:
    """The character, if a text can hold it; `cursor` stands after it."""
    if not any(low <= code <= high for low, high in ALPHABET):
        raise cursor.refuse("U+0000, surrogates and numbers above U+10FFFF are no characters of a text")
    return chr(code)


def read_class(cursor: Cursor) -> Chars:
    """Reads a character class whose opening bracket was just read."""
    negated = cursor.take("^")
    items: list[Shorthand] = []
    while not cursor.take("]"):
        cursor.spend()
        items.append(_read_item(cursor))
    held = Shorthand(unite(pair for item in items for pair in item.sure), unite(pair for item in items for pair in item.possible))
    ranges = intersect(cursor.choose(held.negate() if negated else held), ALPHABET)
    if not items or not ranges:
        raise cursor.refuse(r"an empty class; a bracket in it is written \]")
    return Chars(ranges)


def _read_item(cursor: Cursor) -> Shorthand:
    low = _read_point(cursor)
    is_range = cursor.peek() == "-" and not cursor.text.startswith("-]", cursor.at)
    if not is_range:
        return low if isinstance(low, Shorthand) else Shorthand(((low, low),), ((low, low),))
    cursor.at += 1
    high = _read_point(cursor)
    if isinstance(low, Shorthand) or isinstance(high, Shorthand) or low > high:
        raise cursor.refuse("a range must go from a character up to another")
    return Shorthand(((low, high),), ((low, high),))


def _read_point(cursor: Cursor) -> int | Shorthand:
    if cursor.done:
        raise cursor.refuse('expected "]"')
    if cursor.take("\\"):
        return read_escape(cursor)
    cursor.at += 1
    return ord(cursor.text[cursor.at - 1])


def read_quantified(cursor: Cursor, node: Node) -> Node:
    """The node just read, repeated as the quantifier that follows says, if one does."""
    at = cursor.at
    found = cursor.match(_QUANTIFIER)
    if not found:
        return node
    symbol, least, comma, most = found.groups()
    low, high = _SYMBOLS[symbol] if symbol else (int(least), int(most) if most else None if comma else int(least))
    if high is not None and low > high:
        raise cursor.refuse("the bounds of a repetition are out of order", at)
    if max(low, high or 0) > MAX_COUNT:
        raise cursor.refuse(f"a repetition may count to {MAX_COUNT} at most", at)
    return Repeat(node, low, high, cursor.locate(at))

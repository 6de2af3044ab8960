"""Reading a guide's text: where a parser stands, and what regexes and grammars write alike (escapes, classes, quantifiers)."""

from __future__ import annotations

import re

from server.engine.base import RequestRefused
from server.guides.characters import SHORTHANDS, Shorthand
from server.guides.limits import MAX_DEPTH, MAX_ELEMENTS
from server.guides.refusal import refuse

_CONTROLS = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C, "v": 0x0B}
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})")
_QUANTIFIER = re.compile(r"([*+?])|\{([0-9]{1,9})(?:(,)([0-9]{1,9})?)?\}")
_UNBOUNDED: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class Cursor:
    """A position in a text. `place` names the text, in refusals, when it is but a part of the guide."""

    def __init__(self, text: str, place: str = "") -> None:
        self.text = text
        self.at = 0
        self._prefix = f"{place}, " if place else ""
        self._elements = 0
        self._depth = 0

    @property
    def done(self) -> bool:
        """Whether all is read."""
        return self.at >= len(self.text)

    @property
    def place(self) -> str:
        """The position for people: counted from 1, with the line if there are several."""
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - self.text.rfind("\n", 0, self.at)
        return f"{self._prefix}line {line}, character {column}" if "\n" in self.text else f"{self._prefix}character {column}"

    def refuse(self, what: str) -> RequestRefused:
        """The error to raise for what stands here."""
        return refuse(self.place, what)

    def peek(self) -> str:
        """The next character, or nothing at the end."""
        return self.text[self.at : self.at + 1]

    def take(self, expected: str) -> bool:
        """Steps over `expected`, if it stands here."""
        found = self.text.startswith(expected, self.at)
        self.at += len(expected) * found
        return found

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Steps over what the pattern matches here."""
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def spend(self) -> None:
        """Counts an element; refuses a text with too many before it costs time."""
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            raise self.refuse(f"more than {MAX_ELEMENTS} elements")

    def enter(self) -> None:
        """Counts a group that opens."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.refuse(f"groups nest deeper than {MAX_DEPTH}")

    def leave(self) -> None:
        """Steps over the end of a group."""
        if not self.take(")"):
            raise self.refuse("a group is not closed")
        self._depth -= 1

    @property
    def depth(self) -> int:
        """How many groups are open."""
        return self._depth


def read_character(cursor: Cursor) -> int:
    """The code point of one plain character."""
    self_at, cursor.at = cursor.at, cursor.at + 1
    return _require_character(cursor, ord(cursor.text[self_at]))


def read_escape(cursor: Cursor) -> int | Shorthand:
    r"""What follows a backslash: a code point, or a set such as `\d`."""
    if found := cursor.match(_HEX):
        return int(next(filter(None, found.groups())), 16)
    letter = cursor.peek()
    if letter in SHORTHANDS:
        cursor.at += 1
        return SHORTHANDS[letter]
    if not letter or letter.isalnum() or not letter.isascii():
        raise cursor.refuse("this escape is not supported")
    cursor.at += 1
    return ord(letter)

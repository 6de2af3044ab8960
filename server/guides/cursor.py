"""Where a parser stands in a guide's text, how it says so, and what it may still spend there."""

from __future__ import annotations

import re

from server.engine.base import RequestRefused
from server.guides.characters import Ranges, Shorthand
from server.guides.limits import MAX_DEPTH, MAX_ELEMENTS
from server.guides.refusal import refuse


class Cursor:
    """A position in a text. `within` names the text in refusals when it is only a part of the guide."""

    widest = False
    """Whether a set on which dialects disagree is read as the widest of its meanings, not as the narrowest: what must not match is."""

    def __init__(self, text: str, within: str = "") -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self._within = within
        self._elements = 0

    @property
    def done(self) -> bool:
        """Whether all is read."""
        return self.at >= len(self.text)

    def locate(self, at: int) -> str:
        """The position `at` for people: counted from 1, and with its line where there are several."""
        column = at - self.text.rfind("\n", 0, at)
        line = f"line {self.text.count(chr(10), 0, at) + 1}, " if "\n" in self.text else ""
        return f"{self._within}{', ' if self._within else ''}{line}character {column}"

    def refuse(self, what: str, at: int | None = None) -> RequestRefused:
        """The error to raise about what stands here, or at another place."""
        return refuse(self.locate(self.at if at is None else at), what)

    def peek(self) -> str:
        """The next character; empty at the end."""
        return self.text[self.at : self.at + 1]

    def take(self, expected: str) -> bool:
        """Steps over `expected` if it stands here, and says whether it did."""
        if not self.text.startswith(expected, self.at):
            return False
        self.at += len(expected)
        return True

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Steps over what the pattern matches here."""
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def choose(self, meaning: Shorthand) -> Ranges:
        """What a set stands for here."""
        return meaning.possible if self.widest else meaning.sure

    def spend(self) -> None:
        """Counts an element, so that a text with too many costs no more time than the limit allows."""
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            raise self.refuse(f"more than {MAX_ELEMENTS} elements")

    def open_group(self) -> None:
        """Counts a group whose beginning was just read."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.refuse(f"groups nest deeper than {MAX_DEPTH}")

    def close_group(self) -> None:
        """Steps over a group's end."""
        if not self.take(")"):
            raise self.refuse('expected ")"')
        self.depth -= 1

r"""Regular expressions.

The subset that Python, ECMAScript and xgrammar read alike: literals, `.`, classes, `\d \w \s` and their capitals, groups, `|`, and
quantifiers, of which lazy ones mean the same here. What dialects disagree on is either refused or read so that the answer matches in each
(`characters.Shorthand`).

A regex is matched as a whole, so `^` and `$` at the ends change nothing. A pattern of JSON Schema matches anywhere, so where such an anchor
is missing, any text may stand; and behind the first `^` it may look ahead: `^(?!no)(?=.*[0-9])`.
"""

from __future__ import annotations

import re

from server.guides.characters import ALPHABET, DOT, Shorthand, complement, of
from server.guides.cursor import Cursor
from server.guides.grammar import EMPTY, Chars, Literal, Node, Repeat, choice, sequence
from server.guides.intersection import Wanted
from server.guides.syntax import check_character, read_class, read_escape, read_quantified

_END_ANCHOR = re.compile(r"\$(?=\||\Z)")
_LOOKAHEAD = re.compile(r"\(\?([!=])")
_ANY_TEXT = Repeat(Chars(ALPHABET), 0, None)
_WIDEST_DOT = complement(of("\n"))


def parse_regex(text: str, within: str = "") -> Node:
    """The texts a regex matches as a whole. `within` is where the regex stands, if it is only a part of the guide."""
    return _read(_Reader(text, within))


def parse_pattern(text: str, within: str) -> list[Wanted]:
    """The texts in which a regex matches anywhere: what they must match as a whole, each."""
    reader = _Reader(text, within)
    reader.searched = True
    return [Wanted(_read(reader)), *reader.lookaheads]


class _Reader(Cursor):
    """A cursor in a regex."""

    searched = False
    """Whether any text may stand where no anchor does."""

    def __init__(self, text: str, within: str) -> None:
        super().__init__(text, within)
        self.lookaheads: list[Wanted] = []


def _read(cursor: _Reader) -> Node:
    node = _read_alternatives(cursor)
    if not cursor.done:
        raise cursor.refuse('")" without "("')
    return node


def _read_alternatives(cursor: _Reader) -> Node:
    options = [_read_sequence(cursor)]
    while cursor.take("|"):
        if cursor.depth == 0 and cursor.lookaheads:
            raise cursor.refuse("a lookahead is supported only where there is no other alternative")
        options.append(_read_sequence(cursor))
    return choice(options)


def _read_sequence(cursor: _Reader) -> Node:
    outermost = cursor.depth == 0
    begins = outermost and cursor.take("^")
    if begins and cursor.searched and cursor.at == 1:
        _read_lookaheads(cursor)
    parts: list[Node] = []
    ends = False
    while not cursor.done and cursor.peek() not in "|)":
        ends = outermost and cursor.match(_END_ANCHOR) is not None
        if ends:
            break
        cursor.spend()
        parts.append(read_quantified(cursor, _read_atom(cursor)))
        cursor.take("?")
    if not (outermost and cursor.searched):
        return sequence(parts)
    before = EMPTY if begins else _ANY_TEXT
    behind = EMPTY if ends or not (parts or begins) else _ANY_TEXT
    return sequence((before, *parts, behind))


def _read_lookaheads(cursor: _Reader) -> None:
    while found := cursor.match(_LOOKAHEAD):
        cursor.open_group()
        cursor.widest = found[1] == "!"
        node = _read_alternatives(cursor)
        cursor.widest = False
        cursor.close_group()
        cursor.lookaheads.append(Wanted(sequence((node, _ANY_TEXT)), matched=found[1] == "="))


def _read_atom(cursor: _Reader) -> Node:
    if cursor.take("("):
        return _read_group(cursor)
    if cursor.take("["):
        return read_class(cursor)
    if cursor.take("."):
        return Chars(_WIDEST_DOT if cursor.widest else DOT)
    if cursor.take("\\"):
        code = read_escape(cursor)
        return Chars(cursor.choose(code)) if isinstance(code, Shorthand) else Literal(check_character(cursor, code))
    return Literal(_read_literal(cursor))


def _read_group(cursor: _Reader) -> Node:
    if not cursor.take("?:") and cursor.peek() == "?":
        raise cursor.refuse("of groups only (...) and (?:...) are supported")
    cursor.open_group()
    node = _read_alternatives(cursor)
    cursor.close_group()
    return node


def _read_literal(cursor: Cursor) -> str:
    character = cursor.peek()
    if character in "*+?":
        raise cursor.refuse("a quantifier must follow what it repeats, and only one may")
    if character in "^$":
        raise cursor.refuse("anchors are supported only at the ends")
    if character in "{}]":
        raise cursor.refuse(f'"{character}" must be written "\\{character}" here')
    cursor.at += 1
    return check_character(cursor, ord(character))

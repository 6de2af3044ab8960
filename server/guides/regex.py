r"""Regular expressions.

The subset that Python, ECMAScript and xgrammar read alike: literals, `.`, classes, `\d \w \s` and their capitals, groups, `|`, and
quantifiers, of which lazy ones mean the same here. The answer is matched as a whole, so `^` and `$` at the ends change nothing. What
dialects disagree on is either refused or read so that the answer matches in each (`characters.Shorthand`).
"""

from __future__ import annotations

import re

from server.guides.characters import DOT, Shorthand
from server.guides.cursor import Cursor
from server.guides.grammar import Chars, Literal, Node, choice, sequence
from server.guides.syntax import check_character, read_class, read_escape, read_quantified

_END_ANCHOR = re.compile(r"\$(?=\||\Z)")


def parse_regex(text: str, within: str = "") -> Node:
    """The texts a regex matches as a whole. `within` is where the regex stands, if it is only a part of the guide."""
    cursor = Cursor(text, within)
    node = _read_alternatives(cursor)
    if not cursor.done:
        raise cursor.refuse('")" without "("')
    return node


def _read_alternatives(cursor: Cursor) -> Node:
    options = [_read_sequence(cursor)]
    while cursor.take("|"):
        options.append(_read_sequence(cursor))
    return choice(options)


def _read_sequence(cursor: Cursor) -> Node:
    outermost = cursor.depth == 0
    if outermost:
        cursor.take("^")
    parts: list[Node] = []
    while not cursor.done and cursor.peek() not in "|)":
        if outermost and cursor.match(_END_ANCHOR):
            break
        cursor.spend()
        parts.append(read_quantified(cursor, _read_atom(cursor)))
        cursor.take("?")
    return sequence(parts)


def _read_atom(cursor: Cursor) -> Node:
    if cursor.take("("):
        return _read_group(cursor)
    if cursor.take("["):
        return read_class(cursor)
    if cursor.take("."):
        return Chars(DOT)
    if cursor.take("\\"):
        code = read_escape(cursor)
        return Chars(code.sure) if isinstance(code, Shorthand) else Literal(check_character(cursor, code))
    return Literal(_read_literal(cursor))


def _read_group(cursor: Cursor) -> Node:
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

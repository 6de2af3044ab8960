"""JSON strings: free text, text that a regex matches, and the formats.

Each character has one spelling, that of json.dumps(ensure_ascii=False). Control characters other than those with a letter of their own
(`\\n`, `\\t`, ...) do not occur unless a regex names them alone.
"""

from __future__ import annotations

import json

from server.guides.characters import ALPHABET, Ranges, complement, intersect, of, unite
from server.guides.grammar import Chars, Choice, Literal, Node, Reference, Repeat, Sequence, choice, sequence
from server.guides.regex import parse_regex

_MONTHS = r"(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8])"
_DATE = rf"[1-9]\d{{3}}-(?:{_MONTHS})"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_LABEL = r"[a-z0-9]+(?:-[a-z0-9]+)*"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*\.[a-z]{{2,10}}"
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"

FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": r"P(?:[1-9]\d{0,3}D|T[1-9]\d{0,3}[HMS])",
    "email": rf"[A-Za-z0-9]+(?:[._+-][A-Za-z0-9]+)*@{_HOST}",
    "hostname": _HOST,
    "ipv4": rf"{_OCTET}(?:\.{_OCTET}){{3}}",
    "ipv6": r"(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}",
    "uri": rf"https?://{_HOST}(?:/[A-Za-z0-9._~-]*)*",
    "uuid": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
}
"""Regexes of the formats: each a subset that every validator accepts, such as no 29th of February."""

_SPECIAL = unite([(0x1, 0x1F), *of('"\\')])
_LETTERS = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}


def quote(content: Node) -> Node:
    """A JSON string whose value the node describes."""
    return sequence((Literal('"'), _escape(content), Literal('"')))


def free_string(low: int, high: int | None) -> Node:
    """A JSON string of so many characters."""
    return quote(Repeat(Chars(ALPHABET), low, high))


def format_string(name: str) -> Node:
    """A JSON string of a format of the table."""
    return quote(parse_regex(FORMATS[name]))


def _escape(node: Node) -> Node:
    match node:
        case Literal(text):
            return Literal(json.dumps(text, ensure_ascii=False)[1:-1])
        case Chars(ranges):
            return _escape_chars(ranges)
        case Sequence(parts):
            return sequence(map(_escape, parts))
        case Choice(options):
            return choice(map(_escape, options))
        case Repeat(inner, low, high, place):
            return Repeat(_escape(inner), low, high, place)
        case Reference():
            return node


def _escape_chars(ranges: Ranges) -> Node:
    plain = intersect(ranges, complement(_SPECIAL))
    special = [chr(code) for low, high in intersect(ranges, _SPECIAL) for code in range(low, high + 1)]
    letters = "".join(_LETTERS[character] for character in special if character in _LETTERS)
    options: list[Node] = [Chars(plain)] if plain else []
    if letters:
        options.append(sequence((Literal("\\"), Chars(of(letters)))))
    return choice(options or [_escape(Literal(character)) for character in special])

r"""Writes unrolled rules as the text that the engine reads: xgrammar's EBNF, in five constructs.

Classes are written as what they hold, for xgrammar's negated ones are not exact beyond ASCII.

The engine reads the text, prints what it read and reads that. What it prints for a character is not always what stood here: U+00E9 becomes
`\xe9`, to which the second reading adds every hexadecimal digit that follows. So none ever follows an escape by number: a literal ends
there and another begins, and a class holds what begins with such a digit first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from server.guides.grammar import Chars, Choice, Literal, Node, Reference, Repeat, Rule, Sequence

_HEX = tuple("0123456789abcdefABCDEF")
_BETWEEN_ESCAPE_AND_DIGIT = re.compile("(?<=[^ -~])(?=[0-9A-Fa-f])")


def render_rules(rules: Mapping[str, Rule]) -> str:
    """One line for each rule."""
    return "".join(f"{name} ::= {_render(rule.node)}\n" for name, rule in rules.items())


def _render(node: Node) -> str:
    match node:
        case Literal(text):
            return " ".join(map(_quote, _BETWEEN_ESCAPE_AND_DIGIT.split(text)))
        case Chars(ranges):
            return "[" + "".join(sorted((_escape_range(low, high) for low, high in ranges), key=_is_behind_digits)) + "]"
        case Reference(name):
            return name
        case Choice(options):
            return " | ".join(map(_render, options))
        case Sequence(parts):
            return " ".join(f"({_render(part)})" if isinstance(part, Choice) else _render(part) for part in parts)
        case Repeat():
            raise AssertionError("repetitions are unrolled before rendering")


def _is_behind_digits(item: str) -> bool:
    return not item.startswith(_HEX)


def _quote(text: str) -> str:
    return '"' + "".join(map(_escape, text)) + '"'


def _escape_range(low: int, high: int) -> str:
    first, last = _escape_in_class(low), _escape_in_class(high)
    return first if low == high else f"{first}-{last}"


def _escape_in_class(code: int) -> str:
    return chr(code) if chr(code).isascii() and chr(code).isalnum() else _escape_code(code)


def _escape(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isascii() and character.isprintable() else _escape_code(ord(character))


def _escape_code(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

"""Writes unrolled rules as the text that the engine reads: xgrammar's EBNF, in five constructs.

Classes are written as what they hold, for xgrammar's negated ones are not exact beyond ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping

from server.guides.grammar import Chars, Choice, Literal, Node, Reference, Repeat, Rule, Sequence


def render_rules(rules: Mapping[str, Rule]) -> str:
    """One line for each rule."""
    return "".join(f"{name} ::= {_render(rule.node)}\n" for name, rule in rules.items())


def _render(node: Node) -> str:
    match node:
        case Literal(text):
            return '"' + "".join(map(_escape, text)) + '"'
        case Chars(ranges):
            return "[" + "".join(_escape_range(low, high) for low, high in ranges) + "]"
        case Reference(name):
            return name
        case Choice(options):
            return " | ".join(map(_render, options))
        case Sequence(parts):
            return " ".join(f"({_render(part)})" if isinstance(part, Choice) else _render(part) for part in parts)
        case Repeat():
            raise AssertionError("repetitions are unrolled before rendering")


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

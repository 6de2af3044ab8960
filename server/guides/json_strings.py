"""JSON strings: free text, text that a regex matches, and the formats.

Each character has one spelling, that of json.dumps(ensure_ascii=False). Control characters other than those with a letter of their own
(`\\n`, `\\t`, ...) do not occur unless a regex names them alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping

from server.guides.characters import ALPHABET, Ranges, complement, intersect, of, unite
from server.guides.grammar import Chars, Choice, Literal, Node, Reference, Repeat, Sequence, choice, sequence
from server.guides.intersection import Step

_DAYS = r"(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8])"
_YEAR = r"(?:\d{3}[1-9]|\d\d[1-9]0|\d[1-9]00|[1-9]000)"
_LEAP_YEAR = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = f"(?:{_YEAR}-(?:{_DAYS})|{_LEAP_YEAR}-02-29)"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_COUNT = r"\d{1,5}"
_CLOCK = f"T(?:{_COUNT}H(?:{_COUNT}M(?:{_COUNT}S)?)?|{_COUNT}M(?:{_COUNT}S)?|{_COUNT}S)"
_SPAN = f"(?:{_COUNT}Y(?:{_COUNT}M(?:{_COUNT}D)?)?|{_COUNT}M(?:{_COUNT}D)?|{_COUNT}D)"
_LABEL = r"[A-Za-z0-9]+(?:-+[A-Za-z0-9]+)*"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_DOMAIN = rf"(?:{_LABEL}\.)+[A-Za-z]{{2,63}}"
_MAILBOX = r"[A-Za-z0-9!#$%&'*+/=?^_{|}~-]+"
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_GROUP = "[0-9A-Fa-f]{1,4}"
_SHORTENED = "|".join(f"(?:{_GROUP}:){{{count}}}(?::{_GROUP}){{1,{7 - count}}}" for count in range(1, 7))
_PATH = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_QUERY = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*"

FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": f"P(?:{_SPAN}(?:{_CLOCK})?|{_CLOCK}|{_COUNT}W)",
    "email": rf"{_MAILBOX}(?:\.{_MAILBOX})*@{_DOMAIN}",
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": rf"(?:{_GROUP}:){{7}}{_GROUP}|{_SHORTENED}|(?:{_GROUP}:){{1,7}}:|:(?::{_GROUP}){{1,7}}|::",
    "uri": rf"[A-Za-z][A-Za-z0-9+.-]*:(?://(?:{_HOST}|{_IPV4})(?::\d{{1,5}})?(?:/{_PATH}*)*|{_PATH}+)(?:\?{_QUERY})?(?:#{_QUERY})?",
    "uuid": r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
}
"""Regexes of the formats: each what every validator accepts. Host names are not counted."""

_SPECIAL = unite([(0x1, 0x1F), *of('"\\')])
_LETTERS = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}


def quote(content: Node) -> Node:
    """A JSON string whose value the node describes."""
    return sequence((Literal('"'), _escape(content), Literal('"')))


def free_string(low: int, high: int | None) -> Node:
    """A JSON string of so many characters."""
    return quote(Repeat(Chars(ALPHABET), low, high))


def write_steps(steps: Mapping[int, Step], name: Callable[[int], Reference]) -> dict[str, Node]:
    """Rules for what follows the opening quote of a JSON string whose value an automaton describes; `name` gives each its name.

    A state that only one step leads to, from a state with no other, becomes no rule of its own.
    """
    entered = Counter(following for step in steps.values() for following in step.following)
    inner = {
        following for step in steps.values() if _has_one_way(step) for following in step.following if following and entered[following] == 1
    }

    def follow(number: int) -> Node:
        parts: list[Node] = []
        while _has_one_way(steps[number]):
            ((following, ranges),) = steps[number].following.items()
            parts.append(_escape_chars(ranges))
            if following not in inner:
                return sequence((*parts, name(following)))
            number = following
        options: list[Node] = [sequence((_escape_chars(ranges), name(to))) for to, ranges in steps[number].following.items()]
        return sequence((*parts, choice([*options, Literal('"')] if steps[number].ends else options)))

    return {name(number).rule: follow(number) for number in steps if number not in inner}


def _has_one_way(step: Step) -> bool:
    return not step.ends and len(step.following) == 1


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

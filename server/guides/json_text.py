"""Reads a schema's JSON strictly: what two parsers might understand differently is refused."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import TypeAlias

from server.guides.limits import MAX_DEPTH, MAX_DIGITS
from server.guides.refusal import refuse, show_name

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_BRACKET = re.compile(r"[\[{]|[\]}]")
_NUMBER_SHOWN = 32


def read_json(text: str) -> Json:
    """The value. Raises RequestRefused for what is not JSON, for a name twice in one object, and for nesting too deep to recurse into."""
    _check_depth(text)
    try:
        value: Json = json.loads(
            text, object_pairs_hook=_make_object, parse_int=_make_int, parse_float=_make_float, parse_constant=_refuse_constant
        )
    except json.JSONDecodeError as error:
        raise refuse(f"line {error.lineno}, character {error.colno}", "not JSON") from None
    try:
        write_json(value).encode()
    except UnicodeEncodeError:
        raise refuse("#", "half of a surrogate pair stands alone") from None
    return value


def write_json(value: Json) -> str:
    """The shortest text of a value, which is how answers are written too."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def identify(value: Json) -> str:
    """A text that equal values share."""
    return json.dumps(value, sort_keys=True)


def _check_depth(text: str) -> None:
    depth = 0
    for found in _BRACKET.finditer(_STRING.sub('""', text)):
        depth += 1 if found[0] in "[{" else -1
        if depth > MAX_DEPTH:
            raise refuse("#", f"nests deeper than {MAX_DEPTH}")


def _make_object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    counts = Counter(name for name, _ in pairs)
    for name, count in counts.most_common(1):
        if count > 1:
            raise refuse("#", f'"{show_name(name)}" stands twice in one object')
    return dict(pairs)


def _make_int(digits: str) -> int:
    if len(digits) > _NUMBER_SHOWN:
        raise refuse("#", f"a number has more than {_NUMBER_SHOWN} digits")
    return int(digits)


def _make_float(digits: str) -> float:
    """A whole number is an int, as JSON Schema sees it: 1.0 equals 1."""
    value = float(digits)
    if len(digits) > _NUMBER_SHOWN or math.isinf(value):
        raise refuse("#", f"a number has more than {_NUMBER_SHOWN} digits or is too large")
    return int(value) if value.is_integer() and abs(value) < 10**MAX_DIGITS else value


def _refuse_constant(_: str) -> None:
    raise refuse("#", "NaN and Infinity are not JSON")

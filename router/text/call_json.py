"""The JSON of tool calls: where an object ends while its text arrives, how a call begins, and what a whole one says."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

HEAD = re.compile(
    r'\{\s{0,16}(?:"type"\s{0,16}:\s{0,16}"function"\s{0,16},\s{0,16})?'
    r'"name"\s{0,16}:\s{0,16}"(?P<name>[A-Za-z0-9_-]{1,64})"\s{0,16},\s{0,16}"(?:arguments|parameters)"\s{0,16}:\s{0,16}(?=\{)'
)
"""A call up to the opening brace of its arguments, in the usual order."""

_FIRST_KEY = re.compile(r'\{\s{0,16}"([^"\\]*)"')
_KEYS = ("type", "id", "name", "arguments", "parameters")
_MARKS = re.compile(r'["{}\[\]]|\\.?', re.DOTALL)


class JsonEnd:
    """Counts brackets outside of strings. What stands between them it takes as it is: whether the text is JSON is another question."""

    def __init__(self, depth: int = 0) -> None:
        """`depth` is the number of brackets that are open already."""
        self._depth = depth
        self._in_string = False
        self._escaped = False

    def find(self, text: str, start: int = 0) -> int | None:
        """The place behind the last bracket, None if it is still to come. `start` is where the text that is new begins."""
        if start == len(text):
            return None
        start, self._escaped = start + self._escaped, False
        for mark in _MARKS.finditer(text, start):
            self._count(mark[0])
            if not self._depth and not self._in_string:
                return mark.end()
        return None

    def _count(self, mark: str) -> None:
        if mark == "\\":
            self._escaped = True  # the text ends here, before the character that this escapes
        elif mark == '"':
            self._in_string = not self._in_string
        elif not self._in_string and mark in "{[":
            self._depth += 1
        elif not self._in_string and mark in "}]":
            self._depth -= 1


def may_be_call(text: str, start: int) -> bool:
    """Whether the object that begins at `start` may become a call, as far as its first key tells."""
    key = _FIRST_KEY.match(text, start)
    return key is None or key[1] in _KEYS


def is_object(text: str) -> bool:
    """Whether the text is a JSON object."""
    return isinstance(_load(text), dict)


def read_call(text: str) -> tuple[str, str]:
    """Name and arguments of a whole call, the arguments as JSON text; an empty name if it is none."""
    call = _load(text)
    if not isinstance(call, dict):
        return "", ""
    name, arguments = call.get("name"), call.get("arguments", call.get("parameters"))
    if isinstance(arguments, str):
        arguments = _load(arguments)
    elif arguments is None:
        arguments = {}
    return (name, _dump(arguments)) if isinstance(name, str) and isinstance(arguments, dict) else ("", "")


def _load(text: str) -> Any:
    """The value, None for what is not JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _dump(value: Any) -> str:
    # In ASCII, so that half a surrogate pair, which no message can carry, stays the escape that it was.
    return json.dumps(value)

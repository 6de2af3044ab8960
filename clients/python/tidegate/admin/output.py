"""What is printed: tables for people, JSON for programs, one line for an error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tidegate.errors import TidegateError
from tidegate.v1.admin_pb2 import ModelSet

_CLEAR = "\x1b[H\x1b[2J"

Column = tuple[str, Callable[[Any], Any]]


def print_items(items: Sequence[Message], columns: Sequence[Column], *, as_json: bool) -> None:
    """A listing."""
    print(to_json([to_plain(item) for item in items]) if as_json else to_table(items, columns))


def print_done(answer: Message, text: str, *, as_json: bool) -> None:
    """The outcome of a change: the answer for programs, or a line for people."""
    print(to_json(to_plain(answer)) if as_json else printable(text))


def print_snapshot(items: Sequence[Message], lines: Iterable[Any], columns: Sequence[Column], *, as_json: bool, clear: bool) -> None:
    """A moment of something that is watched: its items as one line of JSON, or a table of `lines`, in place of the last if `clear`."""
    if as_json:
        print(json.dumps([to_plain(item) for item in items], ensure_ascii=False), flush=True)
    else:
        print((_CLEAR if clear and sys.stdout.isatty() else "") + to_table(lines, columns), flush=True)


def to_json(value: Any) -> str:
    """A document."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def to_table(items: Iterable[Any], columns: Sequence[Column]) -> str:
    """Aligned columns under their names; numbers to the right."""
    rows = [[read(item) for _, read in columns] for item in items]
    texts = [[title for title, _ in columns], *([to_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    numeric = [any(isinstance(row[at], int | float) for row in rows) for at in range(len(columns))]
    return "\n".join(_align(row, widths, numeric) for row in texts)


def to_cell(value: Any) -> str:
    """One value; a dash for none."""
    if isinstance(value, Timestamp):
        return value.ToDatetime().strftime("%Y-%m-%d %H:%M:%SZ")
    if isinstance(value, float):
        return f"{value:g}"
    return printable("-" if value is None or value == "" else str(value))


def printable(text: str) -> str:
    """A text that does nothing to a terminal."""
    return "".join(mark if mark.isprintable() else "?" for mark in text)


def describe_error(error: TidegateError) -> str:
    """One line: the reason, what would be right, and the request's id where somebody else has to look."""
    faults = "; ".join(f"{field}: {text}" for field, text in error.fields.items())
    told = faults if error.reason == "FIELD_INVALID" and faults else error.message
    request = f" (request {error.request_id})" if error.code.name == "INTERNAL" and error.request_id else ""
    return printable(f"{error.reason or error.code.name}: {told}{request}")


def to_plain(message: Message) -> Any:
    """Dictionaries and lists of JSON: every field, None where it is unset; 64-bit integers as numbers and enums as on the command line."""
    if isinstance(message, Timestamp):
        return message.ToJsonString()
    if isinstance(message, ModelSet):
        return list(message.models)
    return dict(_to_entry(message, field) for field in message.DESCRIPTOR.fields)


def _to_entry(message: Message, field: Any) -> tuple[str, Any]:
    value = getattr(message, field.name)
    if field.is_repeated:
        return field.name, [_to_value(item, field) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return field.name, None
    if field.name.endswith("_json"):
        return field.name.removesuffix("_json"), json.loads(value)
    return field.name, _to_value(value, field)


def _to_value(value: Any, field: Any) -> Any:
    if field.message_type:
        return to_plain(value)
    return name_of(field.enum_type, value) if field.enum_type else value


def name_of(enum: Any, number: int) -> str:
    """An enum's value without the enum's name: `caller`."""
    names = enum.values_by_number
    if number not in names:
        return str(number)
    first = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return str(names[number].name).removeprefix(first).lower().replace("_", "-")


def _align(row: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    cells = (text.rjust(width) if right else text.ljust(width) for text, width, right in zip(row, widths, numeric, strict=True))
    return "  ".join(cells).rstrip()

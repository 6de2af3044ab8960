"""The router's log: a record is a line, as text or as JSON, that callers can neither forge nor fill the disk with.

Forging: whatever is in a line, control characters and line breaks are written as escapes. Filling: of a kind of line only a few are written
in a minute, and the next one tells how many were left out. A kind is the place in the code that logs, and `extra={"kind": …}` where one
place tells of several things; it comes from us or from configuration. `extra=fields(…)` puts named values into a line.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

FORMATS = ("text", "json")
_MOST_KINDS = 1_000


def set_up(form: str) -> None:
    """Writes the log to stderr in one of FORMATS."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(LineLimit(time.monotonic))
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def fields(kind: str = "", **values: object) -> dict[str, Any]:
    """What `extra` of a record takes: its kind, and values by name, of which empty ones are left out."""
    return {"kind": kind, "fields": _leave_out_empty(values)}


def unlimited(**values: object) -> dict[str, Any]:
    """The same for a line that is always written: what it tells of costs more than the line."""
    return {"is_limited": False, "fields": _leave_out_empty(values)}


def _leave_out_empty(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value not in (None, "")}


@dataclass(slots=True)
class _Window:
    began_s: float
    written: int = 0
    left_out: int = 0


class LineLimit(logging.Filter):
    """Lets `most` lines of a kind through in each `every_s`."""

    def __init__(self, clock: Callable[[], float], *, most: int = 10, every_s: float = 60.0) -> None:
        super().__init__()
        self._clock = clock
        self._most = most
        self._every_s = every_s
        self._windows: OrderedDict[tuple[str, int, str], _Window] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written. One that follows lines that were not tells how many."""
        if not getattr(record, "is_limited", True):
            return True
        window = self._find((record.name, record.lineno, getattr(record, "kind", "")))
        if window.written >= self._most:
            window.left_out += 1
            return False
        window.written += 1
        if window.left_out:
            record.left_out, window.left_out = window.left_out, 0
        return True

    def _find(self, kind: tuple[str, int, str]) -> _Window:
        window = self._windows.get(kind)
        if window is None:
            window = self._windows[kind] = _Window(self._clock())
            if len(self._windows) > _MOST_KINDS:
                self._windows.popitem(last=False)
        elif self._clock() - window.began_s >= self._every_s:
            window.began_s, window.written = self._clock(), 0
        return window


class TextLines(logging.Formatter):
    """A line of words, then the fields as `name=value`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record) + "".join(f" {name}={_show(value)}" for name, value in read_fields(record).items())

    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record))


class JsonLines(logging.Formatter):
    """A line is an object; the fields are its members."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        value = {"time": at, "level": record.levelname, "logger": record.name, "message": record.getMessage(), **read_fields(record)}
        if record.exc_info:
            value["exception"] = self.formatException(record.exc_info)
        return json.dumps(value, default=str)


def read_fields(record: logging.LogRecord) -> dict[str, Any]:
    """The named values of a record, with how many like it were left out."""
    left_out = getattr(record, "left_out", 0)
    return {**getattr(record, "fields", {}), **({"left_out": left_out} if left_out else {})}


def escape(text: str) -> str:
    """Text in which every character is printed as itself, or as an escape: it is one line, and moves no cursor."""
    return text if text.isprintable() else "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)


def _show(value: Any) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or '"' in text or "=" in text else text

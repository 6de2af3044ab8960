"""The router's log: callers can neither forge its lines nor fill it."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest

from router.logs import JsonLines, LineLimit, TextLines, fields, unlimited
from tests.unit.router.auth.bench import Clock

FORGERY = "worker 1 is fine\n2026-01-01 INFO tidegate.app: all is well\x1b[2J\u2028\x85\r\0"


class Log:
    """A logger of its own, and the lines that it wrote."""

    def __init__(self, formatter: logging.Formatter | None = None) -> None:
        self.clock = Clock()
        self._out = StringIO()
        handler = logging.StreamHandler(self._out)
        handler.addFilter(LineLimit(self.clock, most=3, every_s=60.0))
        handler.setFormatter(formatter or JsonLines())
        self._logger = logging.Logger("test")
        self._logger.addHandler(handler)

    def warn(self, text: str, **extra: Any) -> None:
        self._logger.warning("refused: %s", text, extra=extra)

    def other(self) -> None:
        self._logger.warning("another place")

    def fail(self) -> None:
        try:
            raise ValueError(FORGERY)
        except ValueError:
            self._logger.exception("a fault")

    @property
    def lines(self) -> list[str]:
        return self._out.getvalue().split("\n")[:-1]

    @property
    def values(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def test_a_caller_cannot_fill_the_log() -> None:
    """Of a thousand lines of a kind three are written in a minute; the next one tells how many were not."""
    log = Log()
    for number in range(1000):
        log.warn(str(number))
    log.clock.time += 60
    log.warn("later")
    log.warn("and again")
    assert [it["message"] for it in log.values] == ["refused: 0", "refused: 1", "refused: 2", "refused: later", "refused: and again"]
    assert [it.get("left_out") for it in log.values] == [None, None, None, 997, None]


def test_kinds_of_lines_do_not_share_a_limit() -> None:
    """Other kinds from the same place, other places, and what is always written."""
    log = Log()
    for _ in range(10):
        log.warn("a", **fields("one"))
        log.warn("b", **fields("two"))
        log.other()
        log.warn("c", **unlimited())
    assert Counter(it["message"] for it in log.values) == {"refused: a": 3, "refused: b": 3, "another place": 3, "refused: c": 10}


@pytest.mark.parametrize("formatter", [JsonLines, TextLines])
def test_a_line_cannot_be_forged(formatter: Callable[[], logging.Formatter]) -> None:
    """Whatever is in a message, a field or an exception is one line without control characters."""
    log = Log(formatter())
    log.warn(FORGERY, **fields(user=FORGERY))
    log.fail()
    assert len(log.lines) == 2
    assert all(line.isprintable() for line in log.lines)


def test_fields_are_members_of_json_and_words_of_text() -> None:
    """Those without a value are left out."""
    json_log, text_log = Log(), Log(TextLines())
    for log in (json_log, text_log):
        log.warn("x", **fields(request_id="r1", reason="two words", tokens=3, worker=None))
    assert {key: json_log.values[0].get(key) for key in ("level", "logger", "request_id", "reason", "tokens")} == {
        "level": "WARNING",
        "logger": "test",
        "request_id": "r1",
        "reason": "two words",
        "tokens": 3,
    }
    assert text_log.lines[0].endswith(' WARNING test: refused: x request_id=r1 reason="two words" tokens=3')
    assert "worker" not in json_log.values[0]


def test_the_memory_of_kinds_is_bounded() -> None:
    """However many there are."""
    limit = LineLimit(Clock())
    for number in range(5_000):
        limit.filter(logging.makeLogRecord({"kind": str(number)}))
    assert len(limit._windows) == 1_000

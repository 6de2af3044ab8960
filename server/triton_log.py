"""Triton's log: read from its pipe line by line, passed on, and its telling part kept for the error message."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable

TAIL_LINES = 15
TAIL_ERRORS = 5
LINE_BYTES = 1 << 20
LEVELS = {"E": logging.ERROR, "W": logging.WARNING}

logger = logging.getLogger("triton")


def log_line(line: str) -> None:
    """Log a line at the level that its stamp, such as ``E1129``, says."""
    logger.log(LEVELS.get(line[0], logging.INFO) if _is_stamped(line) else logging.INFO, "%s", line)


class LogTail:
    """The last 20 telling lines: tables, which alone would fill it, are left out, and five lines are kept for errors."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self._errors: deque[str] = deque(maxlen=TAIL_ERRORS)

    def add(self, line: str) -> None:
        """Take a line into account."""
        if line.startswith("E") and _is_stamped(line):
            self._errors.append(line)
        if line.strip() and line[0] not in "+|":
            self._lines.append(line)

    def lines(self) -> list[str]:
        """Return them, oldest first."""
        return [*(line for line in self._errors if line not in self._lines), *self._lines]


class LogPipe(asyncio.Protocol):
    """Calls `on_line`, which must not raise, with each line that comes out of a pipe; one of over 1 MiB is cut up."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._rest = b""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._pass_on(line)
        if len(self._rest) > LINE_BYTES:
            self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._flush()
        self.closed.set_result(None)

    def _flush(self) -> None:
        rest, self._rest = self._rest, b""
        if rest:
            self._pass_on(rest)

    def _pass_on(self, line: bytes) -> None:
        self._on_line(line.decode("utf-8", errors="replace"))


def _is_stamped(line: str) -> bool:
    return re.match(r"[EWI]\d{4} ", line) is not None

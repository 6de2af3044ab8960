"""What happened to one request: the moments, taken at the socket, and the outcome. All figures are made from records, after the run.

Moments are seconds of `time.perf_counter()`. A target takes them when bytes come in and before it parses anything, so a slow parser, here
or elsewhere in the harness, does not make a server look slow. An answer ends with its last content, not with the trailer behind it.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended. Only an explicit terminal event makes it COMPLETED."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    """By the server, before or in its answer; a stream that ends without a terminal event too."""
    SHED = "shed"
    """Refused because the server is busy or a limit is reached: not wrong, and not served."""
    STALLED = "stalled"
    """Nothing came for so long that the harness gave up."""
    OVERDUE = "overdue"
    """Took longer, in all, than the harness waits."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counted them; `cached` is None where it does not tell."""

    prompt: int
    completion: int
    cached: int | None = None


@dataclass(slots=True)
class Record:
    """One request's life. `due` is when it was to be sent and `sent` when it was: waiting in the harness lies between."""

    number: int
    tenant: str
    due: float
    sent: float | None = None
    queued: float | None = None
    started: float | None = None
    worker: str = ""
    """Which took it, where the server tells."""
    expected: int = 0
    """Prompt tokens that the server, when it started, expected to be cached there."""
    arrivals: array[float] = field(default_factory=lambda: array("d"))
    """When pieces of content came."""
    ended: float | None = None
    outcome: Outcome = Outcome.RUNNING
    reason: str = ""
    retry_after_s: float = 0.0
    """When a server that refused says to come again; 0 where it does not say."""
    usage: Usage | None = None
    counted: int = 0
    """Tokens that came, where the target sees tokens; 0 where it sees text."""
    heard: float = 0.0
    text: list[str] | None = None
    """The pieces of the answer; kept only for a request that has a follow-up."""

    def send(self, now: float) -> None:
        """The request is handed to the connection."""
        self.sent = self.heard = now

    def queue(self, now: float) -> None:
        """The server says that the request waits."""
        self.queued = self.queued if self.queued is not None else now
        self.heard = now

    def start(self, now: float, worker: str, expected: int) -> None:
        """The server says that a worker has taken it, and how many prompt tokens it expects to be cached there."""
        self.started = self.heard = now
        self.worker, self.expected = worker, expected

    def arrive(self, now: float, text: str = "", tokens: int = 0) -> None:
        """Content has come."""
        self.arrivals.append(now)
        self.heard = now
        self.counted += tokens
        if self.text is not None:
            self.text.append(text)

    def complete(self, now: float) -> None:
        """The server said that the answer is complete."""
        self._end(now, Outcome.COMPLETED, "")

    def fail(self, now: float, reason: str, *, outcome: Outcome = Outcome.FAILED) -> None:
        """It ended otherwise; `reason` is UPPER_SNAKE. Nothing that comes after an end changes it."""
        self._end(now, outcome, reason)

    def _end(self, now: float, outcome: Outcome, reason: str) -> None:
        if self.outcome is Outcome.RUNNING:
            self.ended, self.outcome, self.reason = now, outcome, reason

    @property
    def tokens(self) -> int:
        """Tokens of the answer: as the server counted them, else as the target did, else the pieces that came."""
        if self.usage is not None:
            return self.usage.completion
        return self.counted or len(self.arrivals)

    @property
    def answer(self) -> str:
        """The answer's text so far."""
        return "".join(self.text or ())

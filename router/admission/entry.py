"""The words of admission: who asks for a place, what one knows of its work, and what it is told while it waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from router.model import Priority


@dataclass(frozen=True, slots=True)
class Entry:
    """A turn that asks for a place.

    `weight` is the tenant's share against others. `cached_tokens` of the prompt are expected in the worker's cache; `output_tokens` is what
    the answer is expected to have. `deadline_s` is a time of the queue's clock after which nobody wants the answer any more.
    """

    tenant: str
    prompt_tokens: int
    output_tokens: float
    weight: float = 1.0
    priority: Priority = Priority.INTERACTIVE
    cached_tokens: int = 0
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of one queue.

    At most `length` turns wait, of one tenant at most `tenant_share` of that, none longer than `longest_wait_s`. A standard or batch turn
    that has waited this many seconds competes with its tenant's interactive turns as if it had just come as one. No more turns run than
    have their first tokens within a part of `slo_s`, whatever the workers would take.
    """

    length: int = 1024
    tenant_share: float = 0.5
    longest_wait_s: float = 120.0
    standard_wait_s: float = 5.0
    batch_wait_s: float = 60.0
    slo_s: float | None = None

    @property
    def tenant_length(self) -> int:
        """Turns of one tenant that may wait."""
        return max(1, int(self.length * self.tenant_share))

    def head_start(self, priority: Priority) -> float:
        """Seconds within which an interactive turn may come later and still go first."""
        return {Priority.INTERACTIVE: 0.0, Priority.STANDARD: self.standard_wait_s, Priority.BATCH: self.batch_wait_s}[priority]


class Span(NamedTuple):
    """Seconds with error bars: one actual value in ten lies under `low`, one in ten over `high`, half of them under `mid`."""

    low: float
    mid: float
    high: float


NO_WAIT = Span(0.0, 0.0, 0.0)


class Outlook(NamedTuple):
    """What a turn would meet if it came now: its wait, `NO_WAIT` when it may begin at once, and then the times to its first token: of its
    prompt alone, and the delay by what is under way at the worker, `NO_WAIT` when that is nothing."""

    wait: Span
    prefill: Span
    delay: Span = NO_WAIT


class Work(NamedTuple):
    """Sums over turns, as the time model needs them: `attention` sums, over the turns, new prompt tokens times all prompt tokens."""

    turns: int = 0
    new_tokens: int = 0
    attention: int = 0
    output_tokens: float = 0.0

    def plus(self, other: Work, sign: int = 1) -> Work:
        """Both together; with `sign` -1, without the other."""
        return Work(
            self.turns + sign * other.turns,
            self.new_tokens + sign * other.new_tokens,
            self.attention + sign * other.attention,
            self.output_tokens + sign * other.output_tokens,
        )


def measure_work(entry: Entry) -> Work:
    """The work of one turn."""
    new = entry.prompt_tokens - entry.cached_tokens
    return Work(1, new, new * entry.prompt_tokens, entry.output_tokens)

"""A result file: what was run and what came out, as JSON with a version. Durations are seconds, rates per second, memory MiB."""

from __future__ import annotations

import math
import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from loadtest.histogram import Histogram

SCHEMA: Literal["tidegate.loadtest/1"] = "tidegate.loadtest/1"


class ResultUnreadable(Exception):
    """The file is no result of this version; the message names it."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Durations. A percentile is None where there were too few to tell it from the largest."""

    count: int
    mean: float | None
    low: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    p99_9: float | None
    high: float | None
    bars: list[tuple[float, int]]
    """The whole histogram: each bucket's middle and count."""

    @classmethod
    def of(cls, values: Histogram) -> Distribution:
        """That of a histogram."""
        low, mean, high = (values.low, values.mean, values.high) if values.count else (None, None, None)
        p50, p90, p99, p99_9 = map(values.percentile, (0.5, 0.9, 0.99, 0.999))
        return cls(values.count, mean, low, p50, p90, p99, p99_9, high, list(values.bars()))


@dataclass(frozen=True, slots=True)
class Flag:
    """Something a reader of the figures must know; `code` is stable."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Slo:
    """What a good answer is; `pause_s` is a gap inside an answer that a reader takes for its end."""

    ttft_s: float = 0.5
    tpot_s: float = 0.05
    pause_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Tenant:
    """What one tenant asked and got."""

    name: str
    requests: int
    completed: int
    good: int
    tokens: int
    """Of completed requests, in and out."""
    ttft_p50: float | None
    ttft_p99: float | None


@dataclass(frozen=True, slots=True)
class Fairness:
    """Over tenants: Jain's index, 1 when all are equal and 1/n when one has all, and the largest over the smallest (None: that is zero)."""

    jain: float
    max_over_min: float | None

    @classmethod
    def of(cls, values: list[float]) -> Fairness | None:
        """None for fewer than two tenants. Jain, Chiu, Hawe: A quantitative measure of fairness, DEC TR-301, 1984."""
        squares = sum(value**2 for value in values)
        if len(values) < 2 or not squares:
            return None
        low = min(values)
        return cls(sum(values) ** 2 / (len(values) * squares), max(values) / low if low else None)


@dataclass(frozen=True, slots=True)
class ProcessCost:
    """CPU and resident memory of a process and its children, between the same moments as the figures."""

    name: str
    cpu_s: float
    cpu_us_per_token: float | None
    rss: float
    rss_peak: float


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of the timeline, `at` seconds from its begin. Times to first token are of requests that were due in it."""

    at: float
    due: int
    completed: int
    failed: int
    tokens: float
    running: int
    ttft_p50: float | None
    ttft_max: float | None


@dataclass(frozen=True, slots=True)
class Load:
    """How a run was driven: an open loop's mean rate in requests a second, or a closed loop's number of callers."""

    kind: Literal["open", "closed"]
    value: float

    def __str__(self) -> str:
        return f"{self.value:.4g}/s" if self.kind == "open" else f"{self.value:g} callers"


@dataclass(frozen=True, slots=True)
class Measures:
    """All figures of one run.

    Latencies are those of completed requests: `ttft` and `e2e` from when a request was due to its first and last content, `itl` between two
    arrivals of content of one answer, `tpot` an answer's mean time per token after its first.
    """

    load: Load
    seconds: float
    requests: int
    outcomes: dict[str, int]
    reasons: dict[str, int]
    skipped: int
    offered_per_s: float
    completed_per_s: float
    good_per_s: float
    good_share: float
    tokens_in_per_s: float
    tokens_out_per_s: float
    tokens_wasted: int
    """Came in answers that did not complete."""
    paused: int
    dripping: int
    cached_share: float | None
    """Of the prompt tokens of requests whose server tells."""
    ttft: Distribution
    itl: Distribution
    tpot: Distribution
    e2e: Distribution
    queue_wait: Distribution
    send_delay: Distribution
    """How late the harness sent."""
    loop_lag: Distribution
    tenants: list[Tenant]
    fairness_tokens: Fairness | None
    fairness_completed: Fairness | None
    """Of the shares of their requests that completed."""
    processes: list[ProcessCost]
    harness: ProcessCost
    """What the harness itself used."""
    timeline: list[Slice]
    flags: list[Flag]


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and when the harness ran, and which one."""

    version: str
    python: str
    system: str
    cpus: int
    began: str

    @classmethod
    def here(cls, version: str) -> Machine:
        """This process, now."""
        system = f"{platform.system()} {platform.machine()}"
        return cls(version, platform.python_version(), system, os.cpu_count() or 0, datetime.now(UTC).isoformat(timespec="seconds"))


@dataclass(frozen=True, slots=True)
class Result:
    """A result file; one run for each load."""

    name: str
    target: str
    workload: dict[str, str]
    slo: Slo
    machine: Machine
    runs: list[Measures]
    schema: Literal["tidegate.loadtest/1"] = SCHEMA

    def save(self, path: Path) -> None:
        """Writes the file."""
        path.write_bytes(_ADAPTER.dump_json(self, indent=1))

    @classmethod
    def load(cls, path: Path) -> Result:
        """Reads a file. Raises ResultUnreadable."""
        try:
            return _ADAPTER.validate_json(path.read_bytes())
        except OSError as error:
            raise ResultUnreadable(f"{path}: {error.strerror}") from error
        except ValidationError as error:
            raise ResultUnreadable(f"{path}: not a result of version {SCHEMA}; {error.error_count()} faults") from error


_ADAPTER = TypeAdapter(Result)


def ratio(value: float | None, base: float | None) -> float | None:
    """None where there is nothing to divide."""
    return None if value is None or not base or math.isnan(value) else value / base

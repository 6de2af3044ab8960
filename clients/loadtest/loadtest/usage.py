"""CPU and memory of processes and their children during a run, sampled from /proc."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from loadtest.processes import cpu_seconds, resident_mib

PERIOD_S = 0.25


@dataclass(frozen=True, slots=True)
class Sample:
    """CPU seconds so far and MiB now, `at` seconds of `time.perf_counter()`."""

    at: float
    cpu_s: float
    rss: float


@dataclass(slots=True)
class ProcessSamples:
    """What was sampled of one named process."""

    name: str
    pid: int
    samples: list[Sample] = field(default_factory=list)

    def cpu_between(self, begin: float, end: float) -> float:
        """CPU seconds used between two moments, between samples in proportion."""
        return self._cpu_at(end) - self._cpu_at(begin)

    def rss_between(self, begin: float, end: float) -> list[float]:
        """MiB of the samples between two moments; the last one before where there is none."""
        return [sample.rss for sample in self.samples if begin <= sample.at <= end] or [self.samples[-1].rss if self.samples else 0.0]

    def _cpu_at(self, moment: float) -> float:
        before = [sample for sample in self.samples if sample.at <= moment] or self.samples[:1]
        after = [sample for sample in self.samples if sample.at > moment]
        if not before:
            return 0.0
        left, right = before[-1], after[0] if after else before[-1]
        share = (moment - left.at) / (right.at - left.at) if right.at > left.at and moment > left.at else 0.0
        return left.cpu_s + share * (right.cpu_s - left.cpu_s)


@asynccontextmanager
async def sampling(processes: Sequence[ProcessSamples]) -> AsyncIterator[None]:
    """Samples until left. A process that has gone has no more samples."""
    task = asyncio.create_task(_sample(processes))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        take_samples(processes)


def take_samples(processes: Sequence[ProcessSamples]) -> None:
    """One sample of each."""
    for process in processes:
        family = family_of(process.pid)
        with suppress(OSError):
            used = sum(map(cpu_seconds, family))
            used = max(used, process.samples[-1].cpu_s if process.samples else 0.0)  # a child that ends takes its time along
            process.samples.append(Sample(time.perf_counter(), used, sum(map(resident_mib, family))))


def family_of(pid: int) -> list[int]:
    """A process and all that descend from it."""
    family = [pid]
    for member in family:  # grows while it is read
        for children in Path(f"/proc/{member}/task").glob("*/children"):
            with suppress(OSError):
                family += map(int, children.read_text().split())
    return family


async def _sample(processes: Sequence[ProcessSamples]) -> None:
    while True:
        take_samples(processes)
        await asyncio.sleep(PERIOD_S)

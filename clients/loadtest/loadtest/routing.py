"""`make bench-routing`: what KV-aware routing is worth, with two real CPU workers.

The same conversations, each about a document of its own, come at the same times to two workers behind one router, KV-aware and then round
robin; and to one worker with the cores and the cache of both, which has cached whatever could be: the oracle of the hit share. Each time
the workers begin with empty caches. How many conversations come a second is found out first: as many as keep the workers of this machine,
as it is now, about as busy as `LOAD` says. The engine does not tell what it had cached; hits.py says how that is found out.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from rich.console import Console
from rich.table import Table

from loadtest.histogram import Histogram
from loadtest.hits import Hits, Prefill, measure_hits, read_prefills
from loadtest.record import Record
from loadtest.request import Request
from loadtest.result import ratio
from loadtest.runner import Patience, Runner
from loadtest.tables import number
from loadtest.targets import Target
from loadtest.targets.converse import ConverseOptions, ConverseTarget
from loadtest.workloads.arrivals import Segment, arrival_times
from loadtest.workloads.synthetic import Shape, Span, make_requests
from router.app import App, build
from router.config import read_config
from server.assets.catalogue import DEFAULT_MODEL
from server.assets.store import resolve
from server.build import TEMPLATE, render_repository
from server.launch import Triton, TritonOptions

SECONDS = 50.0
LOAD = 0.3
WARM_UPS = 3
UNEQUAL = 1.3
KV_BLOCKS = 1024
SEED = 7
SHAPE = Shape(
    input_tokens=Span(16, 32),
    output_tokens=Span(4, 4),
    system_tokens=300,  # the document, of which there are ten thousand: hardly one comes twice
    tenants=10_000,
    zipf=0.0,
    turns=Span(2, 4),
    think_s=1.0,
)


@dataclass(frozen=True, slots=True)
class Setup:
    """Workers, and how they are chosen from."""

    name: str
    policy: str
    workers: int = 2


AWARE, ROBIN, ORACLE = Setup("KV-aware", "kv_aware"), Setup("round robin", "round_robin"), Setup("one worker", "kv_aware", workers=1)


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of a setup: hits, turns that did not complete, and seconds from when a turn was due to its first token."""

    hits: Hits
    lost: int
    ttft: Histogram


@asynccontextmanager
async def run_setup(setup: Setup, folder: Path) -> AsyncIterator[Target]:
    """Workers that know nothing yet, a router in this process, and a connection to it."""
    async with AsyncExitStack() as stack:
        work = Path(stack.enter_context(TemporaryDirectory(prefix="tidegate-bench-")))
        blocks = str(2 * KV_BLOCKS // setup.workers)
        values = {"engine": "openvino", "model_dir": str(folder), "model_name": folder.name, "kv_blocks": blocks}
        options = TritonOptions(render_repository(TEMPLATE, work / "models", values))
        workers = [await start_worker(options, cores, stack) for cores in share_cores(setup.workers)]
        app = build(read_config(describe_router(setup, folder, work, workers)))
        endpoints = await stack.enter_async_context(app.running())
        await wait_up(app, setup.workers)
        yield await stack.enter_async_context(ConverseTarget.open(ConverseOptions(endpoints.grpc, exact_length=True)))


def share_cores(workers: int) -> list[set[int]]:
    """This process's cores, dealt out: engines that share cores wait for each other's threads. Where there are too few, they do."""
    cores = sorted(os.sched_getaffinity(0))
    return [set(cores[at::workers] or cores) for at in range(workers)]


async def start_worker(options: TritonOptions, cores: set[int], stack: AsyncExitStack) -> str:
    """Runs a Triton on these cores until the stack is left; its address."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # it inherits them
    try:
        triton = await stack.enter_async_context(await Triton.start(options, on_log=lambda line: None))
    finally:
        os.sched_setaffinity(0, own)
    return triton.endpoints.grpc


def describe_router(setup: Setup, folder: Path, work: Path, workers: Sequence[str]) -> dict[str, object]:
    """The router's configuration."""
    return {
        "listen": "127.0.0.1:0",
        "models": [{"name": folder.name, "path": str(folder), "workers": list(workers), "shared_prefixes": True}],
        "routing": {"policy": setup.policy},
        "store": {"folder": str(work / "store")},
        "auth": {"anonymous": True},
    }


async def wait_up(app: App, workers: int) -> None:
    """Until the router has its workers."""
    async with asyncio.timeout(30):
        while sum(worker.up for worker in app.workers) < workers:  # noqa: ASYNC110 - who watches the fleet is the router
            await asyncio.sleep(0.05)


async def warm_up(target: Target) -> tuple[float, list[Prefill]]:
    """A few conversations one after the other, of which the router learns what work costs here; seconds that one took, and its turns."""
    shape, began, records = replace(SHAPE, think_s=0.0, turns=Span(3, 3)), time.perf_counter(), list[Record]()
    for at in range(WARM_UPS):
        records += (await Runner(target, Patience()).play_open(make_requests(shape, [0.0], SEED + 1 + at))).records
    return (time.perf_counter() - began) / WARM_UPS, read_prefills(records)


def make_conversations(rate: float) -> Iterator[Request]:
    """So many a second; the same ones whenever the rate is the same."""
    return make_requests(SHAPE, arrival_times([Segment(SECONDS, rate, rate)], 1.0, random.Random(SEED)), SEED)


def measure(warm: Sequence[Prefill], records: Sequence[Record]) -> Figures:
    """Of the turns that completed."""
    turns = read_prefills(records)
    ttft = Histogram(record.arrivals[0] - record.due for record in records if record.arrivals)
    return Figures(measure_hits(turns, warm), len(records) - len(turns), ttft)


def compare(aware: Figures, robin: Figures, oracle: Figures) -> Iterator[tuple[str, ...]]:
    """Rows: a figure, its three values, and the ratios of KV-aware to each of the others."""
    for name, read in _FIGURES:
        ours, others = read(aware), (read(robin), read(oracle))
        yield name, number(ours), *map(number, others), *(number(ratio(ours, other)) for other in others)


_FIGURES: tuple[tuple[str, Callable[[Figures], float | None]], ...] = (
    ("turns completed", lambda it: it.hits.turns),
    ("turns not completed", lambda it: it.lost),
    ("turns of which nothing was cached", lambda it: it.hits.cold),
    ("hit share, as the router expects", lambda it: it.hits.expected),
    ("hit share, by the clock", lambda it: it.hits.timed),
    ("  a token called cached, of the time of a new one", lambda it: it.hits.cached_cost),
    ("  by so many turns", lambda it: it.hits.witnesses),
    ("ttft p50 s", lambda it: it.ttft.percentile(0.5)),
    ("ttft p90 s", lambda it: it.ttft.percentile(0.9)),
    ("ttft p99 s", lambda it: it.ttft.percentile(0.99)),
    ("ttft largest s", lambda it: it.ttft.high),
    ("ttft p50, in prefills of a new token", lambda it: ratio(it.ttft.percentile(0.5), it.hits.token_s)),
    ("prefill of a new token ms", lambda it: it.hits.token_s and it.hits.token_s * 1e3),
)


def judge(aware: Figures, robin: Figures, oracle: Figures) -> str:
    """The line to compare: both goals, and what came of them."""
    expected, timed = ratio(aware.hits.expected, oracle.hits.expected), ratio(aware.hits.timed, oracle.hits.timed)
    ttft = ratio(aware.ttft.percentile(0.5), robin.ttft.percentile(0.5))
    return (
        f"hit share to one worker's: {number(expected)} expected, {number(timed)} by the clock (goal: at least 0.9); "
        f"ttft p50 to round robin's: {number(ttft)} (goal: at most 0.5)"
    )


def is_unequal(aware: Figures, robin: Figures) -> bool:
    """Whether the machine was faster for one policy than for the other, so that times say less than they seem to."""
    paces = [it.hits.token_s for it in (aware, robin) if it.hits.token_s is not None]
    return len(paces) < 2 or max(paces) > UNEQUAL * min(paces)


async def bench(console: Console) -> str:
    """Prints the table; returns the line to compare."""
    folder = await asyncio.to_thread(resolve, DEFAULT_MODEL)
    rate, measured = 0.0, list[Figures]()
    for setup in (AWARE, ROBIN, ORACLE):
        async with run_setup(setup, folder) as target:
            took_s, warm = await warm_up(target)
            rate = rate or LOAD * setup.workers / took_s
            with console.status(f"{setup.name}: {rate:.2g} conversations a second for {SECONDS:g} s"):
                run = await Runner(target, Patience()).play_open(make_conversations(rate))
        measured.append(measure(warm, run.records))
    aware, robin, oracle = measured
    title = f"{rate:.2g} conversations a second for {SECONDS:g} s, 2 to 4 questions each on a document of {SHAPE.system_tokens} tokens"
    table = Table("", AWARE.name, ROBIN.name, ORACLE.name, "to round robin", "to one worker", title=title)
    for row in compare(aware, robin, oracle):
        table.add_row(*row)
    console.print(table)
    console.print("The engine does not tell what it had cached; loadtest/hits.py says how both hit shares are found.")
    if is_unequal(aware, robin):
        console.print("[bold yellow]UNEQUAL[/bold yellow] the machine was not equally fast for both policies: run it when it is quiet")
    return judge(aware, robin, oracle)


def main() -> int:
    """The last line is the one to compare."""
    print(uvloop.run(bench(Console(width=None if sys.stdout.isatty() else 150))))
    return 0


if __name__ == "__main__":
    sys.exit(main())

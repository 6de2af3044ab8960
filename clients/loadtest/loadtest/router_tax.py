"""`make bench-router`: what a router costs, ours and others, with the same mock engine behind each.

The engine steps every 20 ms and brings a token for every running answer in each step. Requests arrive at random, about sixty-four answers
are under way. Our router has the scripted engine in a real Triton behind it and is compared with reading that engine's lane directly; peers
have the mock of mocks/openai_mock.py behind them and are compared with that mock. Peers that `make bench-peers` has not installed are left
out. Absolute times of a shared machine mean little: what counts is the ratios and the CPU time per token, of one run.
"""

from __future__ import annotations

import random
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import uvloop
from rich.console import Console
from rich.table import Table

from loadtest.campaign import Campaign, Stage, run_campaign
from loadtest.peers import PEERS, run_process
from loadtest.result import Distribution, Load, Measures
from loadtest.tables import number
from loadtest.targets import Target
from loadtest.targets.converse import ConverseOptions, ConverseTarget
from loadtest.targets.lane import LaneTarget
from loadtest.targets.openai import OpenAIOptions, OpenAITarget
from loadtest.workloads.arrivals import arrival_times, parse_rate
from loadtest.workloads.synthetic import Shape, Span, make_requests
from server.stack import StackOptions, run_stack

STEP_S = 0.02
OUTPUT_TOKENS = 200
RATE = 16.0
"""Times four seconds an answer: sixty-four under way."""
SECONDS = 16.0
UNTRACED = "sample_ratio = 0.0"
"""For the router's [telemetry]: the peers trace nothing either."""
WARM_UP_S = 5.0


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured: a way to the engine, and the process that stands in it, None for nothing."""

    name: str
    open_target: AbstractAsyncContextManager[Target]
    pid: int | None = None


async def measure(case: Case, console: Console) -> Measures:
    """The same requests for every case."""
    times = arrival_times(parse_rate(str(RATE), SECONDS), 1.0, random.Random(1))
    requests = make_requests(Shape(Span(50, 50), Span(OUTPUT_TOKENS, OUTPUT_TOKENS)), times, seed=1)
    stage = Stage(Load("open", RATE), requests, SECONDS)
    processes = [(case.name, case.pid)] if case.pid else []
    campaign = Campaign(case.name, "", lambda: case.open_target, [stage], {}, warm_up_s=WARM_UP_S, processes=processes)
    return (await run_campaign(campaign, console)).runs[0]


async def bench_ours(console: Console) -> list[tuple[str, Measures]]:
    """The lane alone, then our router: gRPC over one stream and over sixty-four, and server-sent events."""
    engine = {"engine": "scripted", "step_us": str(round(STEP_S * 1e6)), "max_num_seqs": "1024", "kv_blocks": "1000000"}
    async with run_stack(StackOptions(engine=engine, router=UNTRACED)) as stack:
        pid = stack.router_process.pid
        cases = [Case("direct: lane", LaneTarget.open(stack.worker))]
        for streams in (1, 64):
            target = ConverseTarget.open(ConverseOptions(stack.router, streams))
            cases.append(Case(f"tidegate, {streams} stream{'s' * (streams > 1)}", target, pid))
        cases.append(Case("tidegate, SSE", OpenAITarget.open(OpenAIOptions(f"http://{stack.http}", "")), pid))
        return [(case.name, await measure(case, console)) for case in cases]


async def bench_peers(console: Console) -> list[tuple[str, Measures]]:
    """The mock alone, then each peer that is installed."""
    async with run_mock_process() as mock:
        measured = [("direct: SSE mock", await measure(Case("direct", _open(mock)), console))]
        for peer in PEERS:
            if not peer.is_installed():
                console.print(f"{peer.name} is not installed; make bench-peers does that")
                continue
            async with peer.run(mock) as running:
                case = Case(peer.name, _open(running.url, running.key), running.pid)
                measured.append((peer.name, await measure(case, console)))
    return measured


@asynccontextmanager
async def run_mock_process() -> AsyncIterator[str]:
    """The mock in a process of its own; gives its URL."""
    command = (sys.executable, "-m", "loadtest.mocks.openai_mock", "--step-ms", str(STEP_S * 1e3))
    async with run_process(command, pipe=True) as process:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        yield f"http://{line.split()[-1]}"


def tax_table(groups: Sequence[Sequence[tuple[str, Measures]]]) -> Table:
    """One line a case; what is added is the difference to the first of its group, ratios are to it too."""
    table = Table(
        "way", "CPU µs/token", "ttft p50 ms", "added", "ttft p99 ms", "added", "inter-token p99 ms", "added", "ratio", "RSS MiB", "flags"
    )
    for group in groups:
        base = group[0][1]
        for name, run in group:
            cost = run.processes[0] if run.processes else None
            table.add_row(
                name,
                number(cost.cpu_us_per_token) if cost else "",
                *_against(run.ttft, base.ttft, "p50"),
                *_against(run.ttft, base.ttft, "p99"),
                *_against(run.itl, base.itl, "p99"),
                _ratio(run.itl, base.itl),
                number(cost.rss) if cost else "",
                " ".join([*(flag.code for flag in run.flags), *run.reasons]),
                end_section=name == group[-1][0],
            )
    return table


def main() -> int:
    """Prints the table; the last line is the one to compare."""
    console = Console(width=None if sys.stdout.isatty() else 150)  # a log file has no width of its own
    groups = [uvloop.run(bench(console)) for bench in (bench_ours, bench_peers)]
    console.print(tax_table(groups))
    costs = {name: run.processes[0].cpu_us_per_token for group in groups for name, run in group if run.processes}
    print("router cpu µs per token: " + ", ".join(f"{name} {number(cost)}" for name, cost in costs.items()))
    return 0


def _open(url: str, key: str = "none") -> AbstractAsyncContextManager[Target]:
    return OpenAITarget.open(OpenAIOptions(url, "mock", {"authorization": f"Bearer {key}"}))


def _against(values: Distribution, base: Distribution, name: str) -> tuple[str, str]:
    value, zero = getattr(values, name), getattr(base, name)
    if value is None or zero is None:
        return "–", "–"
    return f"{value * 1e3:.1f}", f"{(value - zero) * 1e3:+.1f}"


def _ratio(values: Distribution, base: Distribution) -> str:
    return f"{values.p99 / base.p99:.2f}" if values.p99 and base.p99 else "–"


if __name__ == "__main__":
    sys.exit(main())

"""`make bench-lane`: what a token costs the router, in CPU time.

The scripted engine inside the real Triton brings a token for every turn in each step; callers hold 64, 256 or 1,024 turns open at once,
over one Converse stream or spread over 64. Counted are the CPU seconds of the router's process and the tokens callers received between two
moments of the steady state.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from tidegate import Client, Session, user

from loadtest.processes import cpu_seconds, resident_mib
from server.stack import Stack, StackOptions, run_stack

TURNS = (64, 256, 1024)
STREAMS = (1, 64)
STEP_S = 0.02
"""An engine step of a mid-size model on a GPU."""
SETTLE_S = 2.0
MEASURE_S = 6.0


@dataclass(slots=True)
class Tally:
    """Tokens received so far by all callers; each text delta of the scripted engine is ASCII, one character a token."""

    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """One line of the result: microseconds of router CPU per token, tokens a second, router memory in MiB."""

    turns: int
    streams: int
    micros: float
    rate: float
    memory: float


async def measure(stack: Stack, turns: int, streams: int) -> Cost:
    """Holds `turns` turns open over `streams` streams and measures the router."""
    pid, tally = stack.router_process.pid, Tally()
    async with AsyncExitStack() as exits:
        sessions = [await exits.enter_async_context(await _open(stack, exits)) for _ in range(streams)]
        readers = [asyncio.create_task(_read(sessions[at % streams], tally)) for at in range(turns)]
        await asyncio.sleep(SETTLE_S)
        tokens, cpu = tally.tokens, cpu_seconds(pid)
        await asyncio.sleep(MEASURE_S)
        tokens, cpu = tally.tokens - tokens, cpu_seconds(pid) - cpu
        for reader in readers:
            reader.cancel()
    return Cost(turns, streams, cpu / tokens * 1e6, tokens / MEASURE_S, resident_mib(pid))


async def bench() -> list[Cost]:
    """All combinations, one after the other, on one stack."""
    engine = {"engine": "scripted", "step_us": str(round(STEP_S * 1e6)), "max_num_seqs": str(max(TURNS)), "kv_blocks": "1000000"}
    async with run_stack(StackOptions(engine=engine)) as stack:
        return [await measure(stack, turns, streams) for streams in STREAMS for turns in TURNS]


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table; the last line is the one to compare."""
    costs = asyncio.run(bench())
    table = Table("streams", "turns", "router CPU µs/token", "tokens/s", "router MiB", title="router cost per token")
    for cost in costs:
        table.add_row(*map(str, (cost.streams, cost.turns)), f"{cost.micros:.1f}", f"{cost.rate:.0f}", f"{cost.memory:.0f}")
    Console().print(table)
    typical = {cost.streams: cost.micros for cost in costs if cost.turns == 256}
    print(f"router cpu per token: {typical[1]:.1f} {typical[64]:.1f} µs")
    return 0


async def _open(stack: Stack, exits: AsyncExitStack) -> Session:
    client = await exits.enter_async_context(Client(stack.router, retries=0, resume_for=0))
    return client.session()


async def _read(session: Session, tally: Tally) -> None:
    async for event in await session.start(user("go"), max_output_tokens=8000):
        tally.tokens += len(event.text_delta.text)


if __name__ == "__main__":
    sys.exit(main())

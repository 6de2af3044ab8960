"""`make bench-engine`: how much of the bare engine's throughput arrives at a caller.

The same random prompts run through client → router → lane → Triton → engine and through the library's own loop, in turns, in one run on one
machine. The ratio is what the whole serving path leaves of the engine. A second table shows what a long prompt does to the token gaps of
turns that run already: prefill is chunked, so it lengthens steps and freezes nobody.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rich.console import Console
from rich.table import Table
from tidegate import Client, Session, user

from router.text.tokenizer import Tokenizer
from server.assets.catalogue import DEFAULT_MODEL
from server.assets.store import resolve
from server.stack import StackOptions, run_stack

CONCURRENCY = (1, 8, 32, 64)
ROUNDS = 3
MAX_TOKENS = 64
LONG_PROMPT_TOKENS = 4000
WORDS = """
river mountain engine garden silver planet winter music doctor bridge letter window forest market island story science colour village
harbour teacher animal machine morning history language kitchen summer picture journey
""".split()


def make_questions(count: int, seed: int) -> list[str]:
    """Random prompts that the model answers at length, none like another."""
    draw = random.Random(seed)
    return [f"Write a long story about {' and '.join(draw.sample(WORDS, 6))} number {draw.randrange(10**6)}." for _ in range(count)]


async def run_served(session: Session, questions: Sequence[str]) -> float:
    """Tokens per second of the whole path."""
    started = time.perf_counter()
    turns = [await session.start(user(question), max_output_tokens=MAX_TOKENS) for question in questions]
    await asyncio.gather(*(turn.text() for turn in turns))
    tokens = sum(turn.usage.completion_tokens for turn in turns if turn.usage)
    return tokens / (time.perf_counter() - started)


class Bare:
    """The yardstick process; see bare.py."""

    def __init__(self, process: asyncio.subprocess.Process, tokenizer: Tokenizer) -> None:
        self._process = process
        self._tokenizer = tokenizer

    async def run(self, questions: Sequence[str]) -> float:
        """Tokens per second of the library's own loop."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        prompts = [self._tokenizer.encode_chat([{"role": "user", "content": question}]) for question in questions]
        self._process.stdin.write(json.dumps({"prompts": prompts, "max_tokens": MAX_TOKENS}).encode() + b"\n")
        told = json.loads(await self._process.stdout.readline())
        return float(told["tokens"] / told["seconds"])


@asynccontextmanager
async def run_bare(tokenizer: Tokenizer, folder: str) -> AsyncIterator[Bare]:
    """Starts the yardstick."""
    command = (sys.executable, "-m", "loadtest.bare", folder, str(max(CONCURRENCY)))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=2**24)
    try:
        yield Bare(process, tokenizer)
    finally:
        process.terminate()
        await process.wait()


async def compare(session: Session, bare: Bare, concurrency: int) -> tuple[float, float]:
    """Median tokens per second, served and bare, over rounds that take turns in going first."""
    served: list[float] = []
    alone: list[float] = []
    for round_number in range(ROUNDS):
        questions = make_questions(concurrency, seed=1000 * concurrency + round_number)
        runs = [(served, run_served(session, questions)), (alone, bare.run(questions))]
        for results, running in runs if round_number % 2 else reversed(runs):
            results.append(await running)
    return statistics.median(served), statistics.median(alone)


async def token_gaps(session: Session, *, with_long_prompt: bool) -> float:
    """p99 of the gaps between tokens of 8 running turns, in seconds."""
    gaps: list[float] = []
    readers = [asyncio.create_task(_collect_gaps(session, question, gaps)) for question in make_questions(8, seed=int(with_long_prompt))]
    await asyncio.sleep(0.5)
    if with_long_prompt:
        long = await session.start(user(" ".join(random.Random(7).choices(WORDS, k=LONG_PROMPT_TOKENS))), max_output_tokens=1)
        await long.text()
    await asyncio.gather(*readers)
    return statistics.quantiles(gaps, n=100)[98]


async def bench(console: Console) -> float:
    """Prints both tables; returns the ratio at the highest concurrency."""
    folder = await asyncio.to_thread(resolve, DEFAULT_MODEL)
    table = Table("turns", "bare tokens/s", "served tokens/s", "ratio", title="throughput: served against the bare library")
    ratio = 0.0
    async with run_stack(StackOptions()) as stack, run_bare(Tokenizer.load(folder), str(folder)) as bare:
        async with Client(stack.router, retries=0, resume_for=0) as client, client.session() as session:
            await compare(session, bare, 2)
            for concurrency in CONCURRENCY:
                served, alone = await compare(session, bare, concurrency)
                ratio = served / alone
                table.add_row(str(concurrency), f"{alone:.0f}", f"{served:.0f}", f"{ratio:.2f}")
            quiet = await token_gaps(session, with_long_prompt=False)
            busy = await token_gaps(session, with_long_prompt=True)
    console.print(table)
    console.print(f"inter-token p99 of 8 running turns: {quiet * 1e3:.0f} ms; while a {LONG_PROMPT_TOKENS}-token prompt prefills:", end=" ")
    console.print(f"{busy * 1e3:.0f} ms ({busy / quiet:.1f} times)")
    return ratio


def main() -> int:
    """The last line is the one to compare."""
    ratio = asyncio.run(bench(Console()))
    print(f"engine efficiency {max(CONCURRENCY)}: {ratio:.2f}")
    return 0


async def _collect_gaps(session: Session, question: str, gaps: list[float]) -> None:
    last = 0.0
    async for event in await session.start(user(question), max_output_tokens=256):
        if event.HasField("text_delta"):
            now = time.perf_counter()
            if last:
                gaps.append(now - last)
            last = now


if __name__ == "__main__":
    sys.exit(main())

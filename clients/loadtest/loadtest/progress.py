"""A line that says how a run goes, while it goes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from loadtest.runner import Runner

PERIOD_S = 0.5
"""Drawing costs the event loop a millisecond; more often it would show in the harness's own lag."""


@asynccontextmanager
async def showing(runner: Runner, title: str, console: Console) -> AsyncIterator[None]:
    """Shows the line until left. Nothing is drawn where the console is no terminal."""
    if not console.is_terminal:
        yield
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        task = asyncio.create_task(_show(runner, title, live))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})


async def _show(runner: Runner, title: str, live: Live) -> None:
    began = time.perf_counter()
    while True:
        live.update(Text(status_line(runner, title, time.perf_counter() - began)), refresh=True)
        await asyncio.sleep(PERIOD_S)


def status_line(runner: Runner, title: str, seconds: float) -> str:
    """The line."""
    progress = runner.progress
    outcomes = "  ".join(f"{outcome.value} {count}" for outcome, count in progress.outcomes.items())
    return f"{title}  {seconds:.0f} s  running {runner.running}  {outcomes}  {progress.tokens / max(seconds, 1e-9):.0f} tokens/s"

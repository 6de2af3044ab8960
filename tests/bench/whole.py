"""Workers and a router in front of them, and the proof that a test left nothing behind in either."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest
from tidegate import user
from tidegate.v1.turn_pb2 import Message

from tests.bench.router import Router, run_router
from tests.bench.waiting import until
from tests.bench.worker import Worker

CANARY = "canary-5f1c"
"""Stands in every prompt of `ask` and in injected faults. No log, metric, span or status may show it."""


def ask(text: str = "go") -> Message:
    """A user's message that holds the canary."""
    return user(f"{CANARY} {text}")


@asynccontextmanager
async def run_bench(folder: Path, *workers: Worker, small: Sequence[Worker] = (), **sections: Any) -> AsyncIterator[Router]:
    """Runs the workers and a router; when left, no turn may run on in a lane or engine, and no stream may be open."""
    async with AsyncExitStack() as stack:
        for worker in (*workers, *small):
            await stack.enter_async_context(worker.running())
        large_at, small_at = ([worker.address for worker in them] for them in (workers, small))
        router = await stack.enter_async_context(run_router(folder, *large_at, small=small_at, **sections))
        yield router
        await until(lambda: is_idle(router, *workers, *small))
        assert CANARY not in generate_latest(router.app.registry).decode()


def is_idle(router: Router, *workers: Worker) -> bool:
    """Whether nothing runs: neither turns in lanes, nor streams, nor sequences in the workers' engines."""
    sample = router.app.registry.get_sample_value
    active = (sample("tidegate_active_turns", {"model": model}) for model in router.app.pools)
    counted = (router.turns_in_lanes(), sample("tidegate_streams"), *active)
    return not any(counted) and not any(worker.engine.has_work() for worker in workers)

"""Killing things for real."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import grpc
import pytest
from tidegate import Client, TidegateError, user

from tests.bench.waiting import until
from tests.e2e.asking import answer, is_serving, read_metrics, resident_kib
from tests.e2e.scripted import run_scripted


async def test_killing_triton_fails_its_turns_and_the_router_recovers(folder: Path, tmp_path: Path) -> None:
    """kill -9 of Triton: every turn fails UNAVAILABLE within 2 s, health goes NOT_SERVING, and all is well when Triton is back."""
    async with run_scripted(tmp_path, folder, step_us="5000") as worker, worker.router() as router:
        async with Client(router.target) as client, client.session() as session:
            turns = [await session.start(user("go"), max_output_tokens=5000) for _ in range(8)]
            await asyncio.sleep(0.3)
            os.kill(worker.triton.pid, signal.SIGKILL)
            killed = time.monotonic()
            errors = await asyncio.gather(*(turn.text() for turn in turns), return_exceptions=True)
            assert time.monotonic() - killed < 2.0
        assert {error.code for error in errors if isinstance(error, TidegateError)} == {grpc.StatusCode.UNAVAILABLE}
        assert not await is_serving(router.target)
        with pytest.raises(TidegateError) as refused:
            await answer(router.target, "go")
        assert refused.value.reason == "NO_WORKER"
        await worker.triton.wait()
        async with worker.again():
            await until(lambda: is_serving(router.target))
            assert len(await answer(router.target, "go", max_tokens=5)) == 5


@pytest.mark.parametrize("streams", [400, pytest.param(5000, marks=pytest.mark.slow)])
async def test_a_cancel_storm_leaves_nothing_behind(folder: Path, tmp_path: Path, streams: int) -> None:
    """Hundreds or thousands of streams cancelled after a few tokens: nothing runs on, and the router's memory is within 10 % of where it
    was."""
    async with run_scripted(tmp_path, folder, step_us="1000") as worker, worker.router() as router:
        await _storm(router.target, 200)
        before = resident_kib(router.process.pid)
        await _storm(router.target, streams)
        assert await answer(router.target, "still there?", max_tokens=5) != ""
        assert resident_kib(router.process.pid) < before * 1.1
        samples = await asyncio.to_thread(read_metrics, router.http)
        assert {value for name, _, value in samples if name in ("tidegate_active_turns", "tidegate_streams")} == {0.0}
        assert {value for _, labels, value in samples if labels.get("figure") in ("active", "queued")} == {0.0}


async def test_sigterm_drains_the_router(folder: Path, tmp_path: Path) -> None:
    """SIGTERM: the running turn finishes, the caller is told to go, and the router exits with 0."""
    async with run_scripted(tmp_path, folder, step_us="4000") as worker, worker.router() as router:
        async with Client(router.target) as client, client.session() as session:
            turn = await session.start(user("go"), max_output_tokens=100)
            await asyncio.sleep(0.2)
            router.send(signal.SIGTERM)
            assert len(await turn.text()) == 100
        assert await router.process.wait() == 0


async def _storm(target: str, streams: int) -> None:
    """Opens streams, 50 at a time, and drops each after three tokens."""
    async with Client(target, resume_for=0) as client:
        places = asyncio.Semaphore(50)

        async def drop_one() -> None:
            async with places, client.session() as session:
                seen = 0
                async for event in await session.start(user("go"), max_output_tokens=1000):
                    seen += event.HasField("text_delta")
                    if seen == 3:
                        break

        await asyncio.gather(*(drop_one() for _ in range(streams)))

"""The Python SDK as its users meet it: retries that do not multiply, and turns that end with the loop over them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tidegate import Client, Unavailable, sync

from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.worker import End, Finish, Worker

AT_MOST_S = 0.5
"""From leaving the loop to the worker's seeing it."""


def endless(folder: Path) -> Worker:
    return Worker(folder, lambda request: ["a"] * request.max_new_tokens)


async def test_retries_do_not_multiply(chatml: Path) -> None:
    """Entry 125: when all workers drop every turn, a client with its defaults costs three worker calls for each request, or fewer."""
    workers = [Worker(chatml, [End(Finish.CANCELLED)]) for _ in range(2)]
    async with run_bench(chatml, *workers) as router, Client(router.target) as client:
        asked = [client.chat(ask()).text() for _ in range(40)]
        errors = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(error) for error in errors} == {Unavailable}
    calls = sum(worker.calls for worker in workers)
    assert len(asked) < calls <= min(3 * len(asked), len(asked) + 50)


async def test_leaving_a_loop_cancels_at_the_worker(chatml: Path) -> None:
    """Entry 141: the turn of a chat whose loop is left leaves the engine at once, with nothing closed by hand."""
    worker = endless(chatml)
    async with run_bench(chatml, worker) as router, Client(router.target) as client:
        async for event in client.chat(ask(), max_output_tokens=2000):
            if event.HasField("text_delta"):
                break
        await until(lambda: worker.engine.cancelled == 1, within_s=AT_MOST_S)


async def test_leaving_a_loop_cancels_without_async_too(chatml: Path) -> None:
    """Entry 141, in the synchronous client; an exception leaves the loop as well."""
    worker = endless(chatml)

    def leave_twice(target: str) -> None:
        with sync.Client(target) as client:
            for event in client.chat(ask(), max_output_tokens=2000):
                if event.HasField("text_delta"):
                    break
            with pytest.raises(KeyError):
                for _ in client.chat(ask(), max_output_tokens=2000):
                    raise KeyError

    async with run_bench(chatml, worker) as router:
        await asyncio.to_thread(leave_twice, router.target)
        await until(lambda: worker.engine.cancelled == worker.calls, within_s=AT_MOST_S)


async def test_a_turn_that_nobody_holds_is_cancelled(chatml: Path) -> None:
    """Entry 141: a turn that was started and dropped warns its programmer and leaves the engine; the session lives on."""
    worker = endless(chatml)
    async with run_bench(chatml, worker) as router, Client(router.target) as client, client.session() as session:
        with pytest.warns(ResourceWarning, match="neither read to its end nor closed"):
            await session.start(ask(), max_output_tokens=2000)
        assert await (await session.start(ask(), max_output_tokens=3)).text() == "aaa"
        await until(lambda: worker.engine.cancelled == worker.calls - 1, within_s=AT_MOST_S)


async def test_a_client_that_is_left_takes_its_turns_along(chatml: Path) -> None:
    """Whatever still runs when a client is closed is cancelled, on streams of their own and on sessions."""
    worker = endless(chatml)
    async with run_bench(chatml, worker) as router:
        async with Client(router.target) as client:
            session = await client.session().__aenter__()
            turn = await session.start(ask(), max_output_tokens=2000)
            events = aiter(client.chat(ask(), max_output_tokens=2000))
            await anext(events)
            await until(lambda: worker.calls == 2)
        await until(lambda: worker.engine.cancelled == 2, within_s=AT_MOST_S)
        await turn.aclose()

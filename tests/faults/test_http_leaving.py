"""HTTP callers that leave, in every way they can: what they asked for leaves the engine at the next step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from websockets.asyncio.client import connect as open_socket

from tests.bench.http import chat, connect
from tests.bench.router import Router
from tests.bench.tenants import entries
from tests.bench.waiting import until
from tests.bench.whole import CANARY, ask, is_idle, run_bench
from tests.bench.worker import End, Finish, Worker

Made = Callable[[], Awaitable[None]]
ENDLESS = chat(CANARY, max_tokens=2000)
START = {"start": {"turn": 1, "spec": {"messages": [{"role": "ROLE_USER", "content": CANARY}], "maxOutputTokens": 2000}}}


async def close_stream(router: Router, made: Made) -> None:
    async with connect(router.http) as caller:
        await caller.begin(value={**ENDLESS, "stream": True})
        await caller.read_head()
        await made()


async def close_while_whole(router: Router, made: Made) -> None:
    async with connect(router.http) as caller:
        await caller.begin(value=ENDLESS)
        await made()


async def reset_stream(router: Router, made: Made) -> None:
    async with connect(router.http) as caller:
        await caller.begin(value={**ENDLESS, "stream": True})
        await made()
        caller.writer.transport.abort()


async def close_with_more_to_ask(router: Router, made: Made) -> None:
    async with connect(router.http) as caller:
        await caller.begin(value=ENDLESS)
        await made()
        caller.writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\n\r\n")


async def close_socket(router: Router, made: Made) -> None:
    async with open_socket(f"ws://{router.http}/v1/converse") as socket:
        await socket.send(json.dumps({"setup": {}}))
        await socket.send(json.dumps(START))
        await made()


async def drop_socket(router: Router, made: Made) -> None:
    async with open_socket(f"ws://{router.http}/v1/converse") as socket:
        await socket.send(json.dumps({"setup": {}}))
        await socket.send(json.dumps(START))
        await made()
        socket.transport.abort()


WAYS_TO_LEAVE = [close_stream, close_while_whole, reset_stream, close_with_more_to_ask, close_socket, drop_socket]


async def test_a_caller_that_leaves_ends_the_generation(chatml: Path) -> None:
    """After the caller has left, the engine makes no further token for it, and what was made is booked as cancelled."""
    worker = Worker(chatml, lambda _: ["a"] * 2000)
    async with run_bench(chatml, worker) as router:
        for count, leave in enumerate(WAYS_TO_LEAVE, 1):
            goal = worker.engine.made + 3
            await leave(router, lambda: until(lambda: worker.engine.made >= goal))  # noqa: B023  # run at once
            await until(lambda: is_idle(router, worker), within_s=1.0)
            assert worker.engine.cancelled == count, leave
            assert worker.engine.made < goal + 1000, leave
        assert [entry.finish for entry in await entries(router)] == ["cancelled"] * len(WAYS_TO_LEAVE)


async def test_a_queued_caller_that_leaves_never_runs(chatml: Path) -> None:
    """A request that waits for a worker when its caller leaves reaches none."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens, max_sequences=1)
    async with run_bench(chatml, worker) as router, router.client() as client, client.session() as session:
        running = await session.start(ask(), max_output_tokens=200)
        await until(lambda: router.turns_in_lanes() == 1)
        async with connect(router.http) as caller:
            await caller.begin(value={**ENDLESS, "stream": True})
            await until(lambda: router.app.pools["test"].queue.waiting == 1)
        await until(lambda: router.app.pools["test"].queue.waiting == 0)
        assert await running.text() == "a" * 200
        assert worker.calls == 1


async def test_one_answer_that_fails_ends_the_others(chatml: Path) -> None:
    """Of the turns that `n` stands for, none runs on when the request has failed."""
    calls = iter(range(3))
    worker = Worker(chatml, lambda _: ["a"] * 2000 if next(calls) else ["a", End(Finish.FAILED)])
    async with run_bench(chatml, worker) as router, connect(router.http) as caller:
        response = await caller.ask(value={**ENDLESS, "stream": True, "n": 3})
        assert "error" in response.chunks[-1]
        await until(lambda: is_idle(router, worker), within_s=1.0)


async def test_callers_that_leave_at_every_moment_leave_nothing(chatml: Path) -> None:
    """Closed after any part of a request or answer, connections leave no turn, task or sequence behind."""
    worker = Worker(chatml, ["a"] * 30, step_s=0.001)
    body = json.dumps({**ENDLESS, "stream": True}).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )

    async def send_part(router: Router, size: int, wait_s: float) -> None:
        async with connect(router.http) as caller:
            caller.writer.write(request[:size])
            await asyncio.sleep(wait_s)

    async with run_bench(chatml, worker) as router:
        await asyncio.gather(*(send_part(router, at * 7 % (len(request) + 1), 0.0) for at in range(40)))
        await asyncio.gather(*(send_part(router, len(request), at / 1000) for at in range(40)))
        await until(lambda: is_idle(router, worker), within_s=2.0)
        async with connect(router.http) as caller:
            assert (await caller.ask(value=chat("hi"))).status == 200

"""The router's stop, as HTTP callers see it: what runs may finish in time, the rest fails with a reason, and new requests go elsewhere."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tidegate import TidegateError
from tidegate.v1.turn_pb2 import TurnSpec
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed

from tests.bench.http import chat, connect
from tests.bench.resuming import ResumingCaller
from tests.bench.waiting import until
from tests.bench.whole import CANARY, ask
from tests.bench.wires import SOCKET
from tests.bench.worker import Wait, Worker
from tests.faults.test_drain import run_stopping

ASK = chat(CANARY, max_tokens=2000)
START = {"start": {"turn": 1, "spec": {"messages": [{"role": "ROLE_USER", "content": CANARY}], "maxOutputTokens": 2000}}}


async def test_running_answers_finish_within_the_grace(chatml: Path) -> None:
    """Streamed and whole answers that run when the stop begins are complete; then their connections are closed, and the stop ends."""
    worker = Worker(chatml, [Wait(0.2), "ok"])
    async with run_stopping(worker, drain_s=600.0) as stopping:
        address = stopping.router.http
        async with connect(address) as streamed, connect(address) as whole, connect(address) as idle:
            await streamed.begin(value=ASK | {"stream": True})
            await whole.begin(value=ASK)
            await until(lambda: worker.calls == 2)
            stop = stopping.begin_stop()
            events, answer = await streamed.finish(), await whole.finish()
            assert (events.text, events.is_done) == ("ok", True)
            assert answer.json["choices"][0]["message"]["content"] == "ok"
            await asyncio.wait_for(stop, 60.0)
            assert [await it.reader.read() for it in (streamed, whole, idle)] == [b"", b"", b""]


async def test_answers_over_the_grace_fail_as_draining(chatml: Path) -> None:
    """A stream ends with an error that says so, a whole answer is a 503 with Retry-After, long before it is done."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens, step_s=0.05)
    async with run_stopping(worker, drain_s=0.2) as stopping:
        address = stopping.router.http
        async with connect(address) as streamed, connect(address) as whole:
            await streamed.begin(value=ASK | {"stream": True})
            await whole.begin(value=ASK)
            await until(lambda: worker.calls == 2 and worker.engine.made > 2)
            stop = stopping.begin_stop()
            async with asyncio.timeout(60.0):
                events, answer = await streamed.finish(), await whole.finish()
            await stop
    assert (events.chunks[-1]["error"]["code"], events.is_done, events.is_whole) == ("draining", False, True)
    assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (503, "draining", "1")


async def test_new_requests_are_sent_elsewhere_while_the_router_drains(chatml: Path) -> None:
    """On new and on kept connections: 503 with Retry-After, and not ready; the process is alive. Sockets may come for old streams only."""
    worker = Worker(chatml, [Wait(0.4), "ok"])
    async with run_stopping(worker, drain_s=5.0) as stopping:
        address = stopping.router.http
        async with connect(address) as running, connect(address) as kept:
            assert (await kept.ask("/readyz")).status == 200
            await running.begin(value=ASK)
            await until(lambda: worker.calls == 1)
            stop = stopping.begin_stop()
            await asyncio.sleep(0)
            async with connect(address) as new:
                for caller in (kept, new):
                    refused = await caller.ask(value=ASK)
                    assert (refused.status, refused.error["code"], refused.headers["retry-after"]) == (503, "draining", "1")
                assert [(await kept.ask(path)).status for path in ("/readyz", "/healthz")] == [503, 200]
            async with open_socket(f"ws://{address}/v1/converse") as socket:
                await socket.send(json.dumps({"setup": {}}))
                with pytest.raises(ConnectionClosed) as closed:
                    await socket.recv()
                assert closed.value.rcvd is not None
                assert (closed.value.rcvd.code, closed.value.rcvd.reason.partition(":")[0]) == (4014, "DRAINING")
            assert (await running.finish()).status == 200
        await stop
    assert worker.calls == 1


async def test_turns_on_sockets_over_the_grace_fail_as_draining(chatml: Path) -> None:
    """They end as failed with the reason, and only then is the socket closed as going away."""
    worker = Worker(chatml, [Wait(1000)])
    async with run_stopping(worker, drain_s=0.1) as stopping, SOCKET.at(stopping.router) as dial:
        caller = ResumingCaller(0)
        await caller.connect(dial)
        turn = await caller.start(TurnSpec(messages=[ask()]))
        await until(lambda: worker.calls == 1)
        stop = stopping.begin_stop()
        await caller.read_until_ended(turn)
        assert TidegateError(caller.ended[turn].failed.status).reason == "DRAINING"
        assert not await caller.read()
        await stop


async def test_sockets_are_told_and_end(chatml: Path) -> None:
    """A WebSocket gets goAway; its running turn finishes, then it is closed as going away."""
    worker = Worker(chatml, [Wait(0.2), "ok"])
    async with run_stopping(worker, drain_s=5.0) as stopping, open_socket(f"ws://{stopping.router.http}/v1/converse") as socket:
        await socket.send(json.dumps({"setup": {}}))
        await socket.send(json.dumps(START))
        await until(lambda: worker.calls == 1)
        stop = stopping.begin_stop()
        events = []
        try:
            while True:
                events += json.loads(await socket.recv())["events"]
        except ConnectionClosed as closed:
            assert closed.rcvd is not None
            assert (closed.rcvd.code, closed.rcvd.reason) == (1001, "DRAINING")
        await stop
    kinds = [next(iter(event.keys() - {"turn", "sequence"})) for event in events]
    assert kinds.index("goAway") < kinds.index("finished")

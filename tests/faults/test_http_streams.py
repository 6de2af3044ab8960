"""Streamed answers over HTTP: how they begin, end and fail, and that only a whole answer looks like one."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.bench.http import CHAT, Response, chat, connect
from tests.bench.router import Router
from tests.bench.tenants import entries, limit
from tests.bench.waiting import until
from tests.bench.whole import CANARY, run_bench
from tests.bench.worker import Break, End, Finish, Item, Wait, Worker

BROKEN: tuple[Item, ...] = (End(Finish.FAILED), End(Finish.CANCELLED), Break())
"""The engine gives the turn up, the worker drops it, the engine breaks."""


async def ask_for(router: Router, path: str = CHAT, **options: Any) -> Response:
    """An answer on a connection of its own, which must end in time."""
    async with asyncio.timeout(10.0), connect(router.http) as caller:
        return await caller.ask(path, chat(f"{CANARY} go", **options))


def breaking(folder: Path) -> Worker:
    """A worker whose answers break one after the other in each of the ways, and then again."""
    ways = itertools.cycle(BROKEN)
    return Worker(folder, lambda _: ["a", "b", next(ways)])


async def test_bad_input_is_no_stream(chatml: Path) -> None:
    """`n` of zero, streamed or not, is a plain 400 that names the field, and reaches no worker."""
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router:
        for stream in (True, False):
            response = await ask_for(router, n=0, stream=stream)
            assert (response.status, response.error["param"], worker.calls) == (400, "n", 0)


async def test_a_fault_after_content_is_one_error_and_the_end(chatml: Path) -> None:
    """The text so far, an event with an error, then the body ends as HTTP wants, without a finish and without [DONE]."""
    async with run_bench(chatml, breaking(chatml)) as router:
        for _ in BROKEN:
            response = await ask_for(router, stream=True, stream_options={"include_usage": True})
            assert (response.status, response.text, response.is_whole, response.is_done) == (200, "ab", True, False)
            assert [chunk for chunk in response.chunks if "error" in chunk] == response.chunks[-1:]
            assert response.chunks[-1]["error"]["type"] == "server_error"
            assert not [it for chunk in response.chunks for it in chunk.get("choices", ()) if it["finish_reason"]]


async def test_a_fault_inside_a_call_is_no_call(chatml: Path) -> None:
    """A worker that breaks off in the middle of a call's arguments: an error, and no finish that would have it carried out."""
    worker = Worker(chatml, [*'<tool_call>\n{"name": "f", "arguments": {"x": 1', End(Finish.FAILED)])
    tools = [{"type": "function", "function": {"name": "f"}}]
    async with run_bench(chatml, worker) as router:
        response = await ask_for(router, stream=True, tools=tools)
        assert any(choice["delta"].get("tool_calls") for chunk in response.chunks[:-1] for choice in chunk["choices"])
        assert (response.chunks[-1]["error"]["code"], response.is_done) == ("engine_failed", False)
        assert (await ask_for(router, tools=tools)).status == 500


async def test_a_fault_of_a_whole_answer_is_no_answer(chatml: Path) -> None:
    """Without streaming it is a 5xx, never a 200 with a part of the text."""
    async with run_bench(chatml, breaking(chatml)) as router:
        faults = [await ask_for(router) for _ in BROKEN]
        counted = [failed_turns(router, outcome) for outcome in ("ENGINE_FAILED", "WORKER_LOST", "stop")]
    assert [(it.status, it.error["code"]) for it in faults] == [(500, "engine_failed"), (503, "worker_lost"), (500, "engine_failed")]
    assert counted == [2, 1, None]


def failed_turns(router: Router, outcome: str) -> float | None:
    """How many the metrics know."""
    return router.app.registry.get_sample_value("tidegate_turns_total", {"model": "test", "outcome": outcome})


@pytest.mark.parametrize("stream", [True, False])
async def test_a_fault_before_content_has_a_status(chatml: Path, stream: bool) -> None:
    """Refusals by model, quota, engine and for want of a worker keep their status, and say when to come back where that helps."""
    worker = Worker(chatml, lambda _: ["ok"] if worker.calls > 1 else [End(Finish.REFUSED)])
    async with run_bench(chatml, worker) as router:
        assert (await ask_for(router, model="nope", stream=stream)).status == 404
        assert (await ask_for(router, stream=stream)).status == 500
        await limit(router, "local", requests_per_minute=1)
        assert (await ask_for(router, stream=stream)).status == 200
        refused = await ask_for(router, stream=stream)
        assert (refused.status, refused.error["type"]) == (429, "rate_limit_error")
        assert 0 < int(refused.headers["retry-after"]) <= 62
        await limit(router, "local")
        await worker.stop()
        await until(lambda: not any(it.up for it in router.app.workers))
        away = await ask_for(router, stream=stream)
        assert (away.status, away.error["code"], away.headers["retry-after"]) == (503, "no_worker", "1")
        await worker.start()


async def test_a_schema_that_cannot_be_compiled_is_the_callers_fault(chatml: Path) -> None:
    """A worker's refusal of a form is a 400 that names the field, streamed or not, and quotes nothing else."""
    worker = Worker(chatml, [End(Finish.REFUSED, "guided_decoding_guide: unknown type at #/a")])
    form = {"type": "json_schema", "json_schema": {"schema": {"a": CANARY}}}
    async with run_bench(chatml, worker) as router:
        for stream in (True, False):
            refused = await ask_for(router, stream=stream, response_format=form)
            assert (refused.status, refused.error["code"], refused.error["param"]) == (400, "guide_invalid", "response_format")
            assert CANARY not in refused.body.decode()


async def test_after_a_heartbeat_a_fault_is_in_the_stream(chatml: Path) -> None:
    """A status cannot be held back for ever: when it was sent before any content, a later fault is an event."""
    worker = Worker(chatml, [Wait(0.4), End(Finish.FAILED)])
    async with run_bench(chatml, worker, http={"hold_s": 0.05}, timeouts={"heartbeat_s": 0.1}) as router:
        response = await ask_for(router, stream=True)
    assert response.status == 200
    assert b": keep-alive\n" in response.body
    assert only_events(response)
    assert [list(chunk) for chunk in response.chunks] == [["error"]]


async def test_a_waiting_stream_tells_its_place(chatml: Path) -> None:
    """While a turn waits for a worker its stream is open and tells the place in a field that clients of the standard do not see."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens, max_sequences=1)
    async with run_bench(chatml, worker, http={"hold_s": 0.05}) as router:
        first = asyncio.create_task(ask_for(router, max_tokens=300))
        await until(lambda: router.turns_in_lanes() == 1)
        response = await ask_for(router, max_tokens=3, stream=True)
        assert (await first).status == 200
    assert response.body.startswith(b': queued\ntidegate: {"queued":{"position":0,"eta_s":')
    assert only_events(response)
    assert (response.text, response.is_done) == ("aaa", True)


def only_events(response: Response) -> bool:
    """Whether each blank line ends an event with data: OpenAI's client for Go took any other for one, and failed for want of JSON."""
    return all(b"data: " in block for block in response.body.removesuffix(b"\n\n").split(b"\n\n"))


async def test_usage_comes_once_if_asked_for(chatml: Path) -> None:
    """In a chunk of its own without choices, before [DONE]; the other chunks have none, or null where it was asked for."""
    async with run_bench(chatml, Worker(chatml, ["he", "llo"])) as router:
        for options, count in (({}, 0), ({"include_usage": False}, 0), ({"include_usage": True}, 1)):
            response = await ask_for(router, stream=True, stream_options=options)
            told = [chunk for chunk in response.chunks if chunk.get("usage")]
            assert [chunk["choices"] for chunk in told] == [[]] * count
            assert told == response.chunks[-1:] * count
            assert all(("usage" in chunk) == bool(count) for chunk in response.chunks)
            assert response.is_done


async def test_clients_that_close_at_done_are_booked_in_full(chatml: Path) -> None:
    """However fast a client closes after the last event, its turn is complete in the ledger."""
    async with run_bench(chatml, Worker(chatml, ["ok"], step_s=0.0005)) as router:
        for _ in range(100):
            async with connect(router.http) as caller:
                await caller.begin(value=chat(CANARY, stream=True))
                response = await caller.read_head()
                async for _ in caller.read_body(response):
                    if response.is_done:
                        break
        booked = await entries(router)
    assert [(entry.finish, entry.completion_tokens) for entry in booked] == [("stop", 2)] * 100


async def test_streams_are_ascii_and_characters_whole(chatml: Path) -> None:
    """Characters cut over tokens come whole, escaped, so that no proxy's cut of the body can break one."""
    async with run_bench(chatml, Worker(chatml, [b"\xf0\x9f", b"\x94", b"\xa5", " \u2028é"])) as router:
        for n in (1, 3):
            response = await ask_for(router, stream=True, n=n)
            assert response.body.isascii()
            by_choice = dict.fromkeys(range(n), "")
            for choice in (choice for chunk in response.chunks for choice in chunk["choices"]):
                by_choice[choice["index"]] += choice["delta"].get("content", "")
            assert by_choice == dict.fromkeys(range(n), "🔥 \u2028é")

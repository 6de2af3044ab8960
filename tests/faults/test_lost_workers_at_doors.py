"""Workers that go without a word, as every door tells it: neither an answer that was cut nor a call looks like a whole one (fault 47)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tidegate.v1.turn_pb2 import Tool, TurnSpec

from tests.bench.doors import DOORS, Outcome
from tests.bench.raw_worker import Requests, Responses, greeting, next_generation, run_raw_worker, tokens
from tests.bench.router import Router, run_router
from tests.bench.waiting import until
from tests.bench.whole import CANARY, ask, run_bench
from tests.bench.worker import Wait, Worker

TEXT = "ab"
HALF_A_CALL = '<tool_call>\n{"name": "f", "arguments": {"x": 1'


async def outcome_at(door: str, router: Router) -> Outcome:
    """Of a question that is the door's own: one that brings two workers down is asked no more."""
    spec = TurnSpec(messages=[ask(door)], tools=[Tool(name="f")])
    body = {"messages": [{"role": "user", "content": f"{CANARY} {door}"}], "tools": [{"type": "function", "function": {"name": "f"}}]}
    return await DOORS[door](router, spec, body)


def assert_lost(door: str, outcome: Outcome, said: str) -> None:
    """The failure, behind what had come; an answer in one piece is nothing but the failure."""
    assert (outcome.error, outcome.finish) == ("worker_lost", ""), door
    if door != "whole":
        assert (outcome.text, outcome.calls) == ((said, ()) if said == TEXT else ("", (("f", '{"x": 1'),))), door


@pytest.mark.parametrize("said", [TEXT, HALF_A_CALL])
async def test_a_worker_that_is_cut_off_in_mid_answer(chatml: Path, said: str) -> None:
    """Its connection breaks; when it is back the next door is served."""
    worker = Worker(chatml, [said, Wait(1000)])
    async with run_bench(chatml, worker) as router:
        for count, door in enumerate(DOORS, 1):
            outcome = asyncio.create_task(outcome_at(door, router))
            await until(lambda: router.turns_begun() == count)  # noqa: B023  # run at once
            await worker.stop()
            assert_lost(door, await outcome, said)
            await worker.start()
            await until(lambda: all(it.up for it in router.app.workers))


@pytest.mark.parametrize("said", [TEXT, HALF_A_CALL])
async def test_a_worker_that_ends_its_lane_in_mid_answer(chatml: Path, said: str) -> None:
    """The stream to the router ends with OK, which is no end of any turn."""

    async def play(requests: Requests) -> Responses:
        yield greeting(chatml)
        await next_generation(requests)
        yield tokens(2, 1, list(Worker(chatml).tokens_of(said)))

    async with run_raw_worker(play) as address, run_router(chatml, address) as router:
        for door in DOORS:
            await until(lambda: all(it.up for it in router.app.workers))
            assert_lost(door, await outcome_at(door, router), said)
        assert turns_that(router, "WORKER_LOST") == len(DOORS)
        assert not turns_that(router, "stop")


def turns_that(router: Router, outcome: str) -> float | None:
    """How many turns the metrics know with this outcome."""
    return router.app.registry.get_sample_value("tidegate_turns_total", {"model": "test", "outcome": outcome})

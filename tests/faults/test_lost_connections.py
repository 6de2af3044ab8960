"""Connections that are lost on the way: whoever resumes its stream gets each answer whole and once, wherever the wire was cut."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from tidegate.v1.chat_service_pb2_grpc import ChatServiceStub
from tidegate.v1.turn_pb2 import TurnSpec

from tests.bench.cutting import connected, digest, digests, talk_through_cuts
from tests.bench.proxy import Proxy
from tests.bench.resuming import ResumingCaller
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Worker

ANSWER = [f"{at:04} {'é' * (at % 5)} " for at in range(180)]
SPEC = TurnSpec(messages=[ask()], max_output_tokens=2040)


@pytest.mark.parametrize("cuts", [20, pytest.param(200, marks=pytest.mark.slow)])
async def test_a_stream_survives_cuts_at_random_points(chatml: Path, cuts: int) -> None:
    """Two turns run at a time; the wire is cut after random numbers of bytes, between frames and within them."""
    worker = Worker(chatml, ANSWER, step_s=0.0)
    async with run_bench(chatml, worker, resume={"longest_s": 5.0}) as router, Proxy(router.target).running() as proxy:
        caller = await talk_through_cuts([proxy], cuts, SPEC)
        assert worker.calls == len(caller.starts)
    assert digests(caller) == {digest("".join(ANSWER))}


async def test_a_frozen_connection_is_taken_over(chatml: Path) -> None:
    """The cable is pulled: neither side hears anything, and the caller goes on over another one while the old stands."""
    worker = Worker(chatml, ANSWER)
    async with run_bench(chatml, worker) as router, Proxy(router.target).running() as proxy:
        caller = ResumingCaller(5)
        async with connected(caller, proxy.address):
            await caller.start(SPEC)
            while not caller.texts[1]:
                await caller.read()
            proxy.freeze()
            async with connected(caller, router.target):
                await caller.read_until_ended(1)
            proxy.thaw()
    assert caller.texts[1] == "".join(ANSWER)


async def test_a_reader_that_was_too_slow_may_come_back(chatml: Path) -> None:
    """The router ends its connection and goes on with its turns; all that they have said is there."""
    worker = Worker(chatml, ["a" * 50] * 38, max_sequences=200)
    small = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16_384))  # else the transport would take up everything
    async with run_bench(chatml, worker, timeouts={"slow_reader_s": 0.3}, resume={"longest_s": 5.0}) as router:
        caller = ResumingCaller(5)
        async with grpc.aio.insecure_channel(router.target, options=small) as channel:
            await caller.connect(ChatServiceStub(channel))  # type: ignore[no-untyped-call]
            await caller.read()
            turns = [await caller.start(TurnSpec(messages=[ask()], max_output_tokens=1950)) for _ in range(200)]
            await until(lambda: router.app.registry.get_sample_value("tidegate_detached_streams") == 1)
        async with connected(caller, router.target):
            await caller.read_until_ended(*turns)
            await caller.half_close()
            assert not await caller.read()
    assert {caller.texts[turn] for turn in turns} == {"a" * 1900}

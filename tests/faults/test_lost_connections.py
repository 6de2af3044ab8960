"""Connections that are lost on the way: whoever resumes its stream gets each answer whole and once, wherever the wire was cut."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tidegate.v1.turn_pb2 import TurnSpec

from tests.bench.cutting import connected, digest, digests, talk_through_cuts
from tests.bench.http import small_window
from tests.bench.proxy import Proxy
from tests.bench.resuming import ResumingCaller
from tests.bench.router import Router
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.wires import GRPC, Dial, Face, dialling_grpc, dialling_socket, on_both_faces
from tests.bench.worker import Worker

ANSWER = [f"{at:04} {'é' * (at % 5)} " for at in range(180)]
SPEC = TurnSpec(messages=[ask()], max_output_tokens=2040)


@on_both_faces
@pytest.mark.parametrize("cuts", [20, pytest.param(200, marks=pytest.mark.slow)])
async def test_a_stream_survives_cuts_at_random_points(chatml: Path, face: Face, cuts: int) -> None:
    """Two turns run at a time; the wire is cut after random numbers of bytes, between frames and within them."""
    worker = Worker(chatml, ANSWER, step_s=0.0)
    async with run_bench(chatml, worker, resume={"longest_s": 5.0}) as router, Proxy(face.address_of(router)).running() as proxy:
        caller = await talk_through_cuts(face, [proxy], cuts, SPEC)
        assert worker.calls == len(caller.starts)
    assert digests(caller) == {digest("".join(ANSWER))}


@on_both_faces
async def test_a_frozen_connection_is_taken_over(chatml: Path, face: Face) -> None:
    """The cable is pulled: neither side hears anything, and the caller goes on over another one while the old stands."""
    worker = Worker(chatml, ANSWER)
    async with run_bench(chatml, worker) as router, Proxy(face.address_of(router)).running() as proxy:
        caller = ResumingCaller(5)
        async with connected(caller, face, proxy.address):
            await caller.start(SPEC)
            while not caller.texts[1]:
                await caller.read()
            proxy.freeze()
            async with connected(caller, face, face.address_of(router)):
                await caller.read_until_ended(1)
            proxy.thaw()
    assert caller.texts[1] == "".join(ANSWER)


@on_both_faces
async def test_a_reader_that_was_too_slow_may_come_back(chatml: Path, face: Face) -> None:
    """The router ends its connection and goes on with its turns; all that they have said is there."""
    worker = Worker(chatml, ["a" * 50] * 38, max_sequences=50)
    spec = TurnSpec(messages=[ask()], max_output_tokens=1950, logprobs=True)  # which are many bytes
    async with run_bench(chatml, worker, timeouts={"slow_reader_s": 1.0}, resume={"longest_s": 5.0}) as router:
        caller = ResumingCaller(5)
        async with narrow(face, router) as dial:
            await caller.connect(dial)
            await caller.read()
            turns = [await caller.start(spec) for _ in range(50)]
            await until(lambda: router.app.registry.get_sample_value("tidegate_detached_streams") == 1)
        async with connected(caller, face, face.address_of(router)):
            await caller.read_until_ended(*turns)
            await caller.half_close()
            assert not await caller.read()
    assert {caller.texts[turn] for turn in turns} == {"a" * 1900}


def narrow(face: Face, router: Router) -> AbstractAsyncContextManager[Dial]:
    """Over a connection that holds little; by default the transport would take up everything."""
    if face is GRPC:
        return dialling_grpc(router.target, **{"grpc.http2.bdp_probe": 0, "grpc.http2.lookahead_bytes": 16_384})
    return dialling_socket(router.http, sock=small_window(router.http), max_queue=1)

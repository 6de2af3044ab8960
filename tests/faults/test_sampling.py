"""What callers ask of the sampling reaches the engine as they said it, and nobody else's does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tidegate import Client, user
from tidegate.v1.chat_service_pb2 import CompleteRequest, CountTokensRequest
from tidegate.v1.turn_pb2 import Sampling, TurnSpec

from server.engine.base import Sampling as Asked
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Worker

ZEROES = ("temperature", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty")
NEVER_ZERO = ("top_p", "repetition_penalty")

EDGES: dict[str, tuple[float, float]] = {
    "min_p": (0.0, 0.999),
    "temperature": (0.0, 2.0),
    "top_p": (0.001, 1.0),
    "top_k": (0, 2**31 - 1),
    "seed": (0, 2**64 - 1),
    "repetition_penalty": (0.0001, 10.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}


def test_every_sampling_field_is_tried() -> None:
    """A field that is added to the API must be added to the tests of this file."""
    fields = {field.name for field in Sampling.DESCRIPTOR.fields}
    assert fields == EDGES.keys() == {*ZEROES, *NEVER_ZERO}


async def complete(client: Client, **sampling: Any) -> None:
    spec = TurnSpec(messages=[ask()], sampling=Sampling(**sampling))
    await client.stub.Complete(CompleteRequest(spec=spec))


async def test_zero_is_not_absent(chatml: Path) -> None:
    """A sampling field set to zero reaches the engine as zero, and one left out as not given."""
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router, router.client() as client:
        for field in ZEROES:
            await complete(client, **{field: 0})
            await complete(client)
            zero, absent = (request.sampling for request in list(worker.engine.requests)[-2:])
            assert zero == Asked(**{field: 0})
            assert absent == Asked()


async def test_a_turns_zero_overrides_the_streams_default(chatml: Path) -> None:
    """A field that a turn sets to zero wins over the default of its stream's setup; one it leaves out takes the default."""
    worker = Worker(chatml)
    defaults = Sampling(temperature=1.5, top_k=40, seed=7)
    async with run_bench(chatml, worker) as router, router.client() as client, client.session(sampling=defaults) as session:
        await (await session.start(ask(), sampling=Sampling(temperature=0, seed=0))).text()
        await (await session.start(ask())).text()
        own, default = (request.sampling for request in worker.engine.requests)
    assert own == Asked(temperature=0.0, top_k=40, seed=0)
    assert default == Asked(temperature=1.5, top_k=40, seed=7)


async def test_what_the_router_admits_the_engine_takes(chatml: Path, subtests: pytest.Subtests) -> None:
    """The least and the greatest value of each field that the router lets pass is not refused by the worker."""
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router, router.client() as client:
        for field, edges in EDGES.items():
            with subtests.test(field):
                for value in edges:
                    await complete(client, **{field: value})
                assert [getattr(request.sampling, field) for request in list(worker.engine.requests)[-2:]] == pytest.approx(edges)


async def test_streams_do_not_share_their_setup(chatml: Path) -> None:
    """Twenty streams over one connection, with interleaved turns, each keep the sampling of their own setup."""
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router, router.client() as client:
        await asyncio.gather(*(run_stream(client, number) for number in range(20)))
        offsets = {len(request.prompt) - (request.sampling.seed or 0) for request in worker.engine.requests}
        assert worker.calls == 60
        assert len(offsets) == 1


async def run_stream(client: Client, number: int) -> None:
    """Three turns whose prompts have as many letters as their stream's seed says."""
    async with client.session(sampling=Sampling(seed=number)) as session:
        for _ in range(3):
            await (await session.start(ask("x" * number))).text()


async def test_the_least_length_never_exceeds_what_the_answer_may_have(chatml: Path) -> None:
    """A minimum above the default or above the room that is left is cut to it, instead of being refused by the engine."""
    worker = Worker(chatml)
    async with run_bench(chatml, worker, model={"default_output_tokens": 7}) as router, router.client() as client:
        frame = (await client.stub.CountTokens(CountTokensRequest(messages=[user("")]))).prompt_tokens
        for most, fewest, asked in ((None, 1000, 7), (5, 5, 5), (1000, 900, 900), (None, 0, 0), (2**32 - 1, 2**32 - 1, 2000)):
            spec = TurnSpec(messages=[user("x" * (48 - frame))], max_output_tokens=most, min_output_tokens=fewest)
            await client.stub.Complete(CompleteRequest(spec=spec))
            assert worker.engine.requests[-1].sampling.min_tokens == asked

"""Metrics: labels come from the configuration and from closed sets, so no caller can make a series; every turn is counted once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tidegate.v1.chat_service_pb2 import CompleteRequest, ConverseRequest, CountTokensRequest, Setup, StartTurn
from tidegate.v1.turn_pb2 import TurnSpec

from tests.bench.calls import failure_of
from tests.bench.router import Router
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.worker import End, Finish, Item, Worker


def series_of(router: Router) -> set[tuple[str, str]]:
    """Name and labels of every series that a scrape would show."""
    families = router.app.registry.collect()
    return {(sample.name, str(sorted(sample.labels.items()))) for family in families for sample in family.samples}


def turns_by_outcome(router: Router) -> dict[str, float]:
    """How many turns ended how."""
    families = router.app.registry.collect()
    samples = [sample for family in families for sample in family.samples if sample.name == "tidegate_turns_total"]
    return {sample.labels["outcome"]: sample.value for sample in samples}


async def test_unknown_models_make_no_series(chatml: Path) -> None:
    """Hundreds of model names that nobody configured, on every kind of call, leave the series as they were."""
    async with run_bench(chatml, Worker(chatml)) as router, router.stub() as stub:
        await stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask()])))
        before = series_of(router)
        names = [f"junk-{number}" for number in range(200)] + ["x" * 10_000, "Zoë\n", '"}']
        specs = [TurnSpec(model=name, messages=[ask()]) for name in names]
        errors = await asyncio.gather(*(failure_of(stub.Complete(CompleteRequest(spec=spec))) for spec in specs))
        errors += await asyncio.gather(*(failure_of(stub.CountTokens(CountTokensRequest(model=name))) for name in names))
        starts = [ConverseRequest(start=StartTurn(turn=number, spec=spec)) for number, spec in enumerate(specs, 1)]
        frames = [frame async for frame in stub.Converse(iter((ConverseRequest(setup=Setup()), *starts)))]
        assert {error.reason for error in errors} == {"MODEL_UNKNOWN"}
        assert max(len(error.message) for error in errors) < 100
        assert sum(event.HasField("failed") for frame in frames for event in frame.events) == len(names)
        assert series_of(router) == before


async def test_every_turn_is_counted_once_by_how_it_ended(chatml: Path) -> None:
    """Finished, cut, cancelled, failed and refused turns are each counted once, and only finished ones as finished."""
    scripts: list[list[Item]] = [["ok"], ["a"] * 2000, ["a", End(Finish.FAILED)], ["a"] * 2000]
    worker = Worker(chatml, lambda _: scripts[worker.calls - 1])
    async with run_bench(chatml, worker) as router, router.client() as client, client.session() as session:
        for most in (10, 5, 10):
            await asyncio.gather((await session.start(ask(), max_output_tokens=most)).text(), return_exceptions=True)
        cancelled = await session.start(ask(), max_output_tokens=2000)
        await until(lambda: worker.calls == 4)
        await cancelled.cancel()
        await cancelled.text()
        await failure_of(client.stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask("x" * 3000)]))))
        assert turns_by_outcome(router) == {"stop": 1, "length": 1, "ENGINE_FAILED": 1, "cancelled": 1, "PROMPT_TOO_LONG": 1}


async def test_tokens_are_counted_by_the_router(chatml: Path) -> None:
    """Prompt and completion counters are the sums of what the callers were told."""
    async with run_bench(chatml, Worker(chatml, ["abc"])) as router, router.stub() as stub:
        whole = [await stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask("x" * size)]))) for size in range(5)]
        sample = router.app.registry.get_sample_value
        assert sample("tidegate_prompt_tokens_total", {"model": "test"}) == sum(one.usage.prompt_tokens for one in whole)
        assert sample("tidegate_completion_tokens_total", {"model": "test"}) == 15

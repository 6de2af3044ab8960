"""A real model at three times what it can serve in time, by the load harness: who is answered, who goes down, and who is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from loadtest.record import Outcome
from loadtest.request import Message, Request
from loadtest.runner import Patience, Run, Runner
from loadtest.targets.converse import ConverseOptions, ConverseTarget

from server.assets.catalogue import DEFAULT_MODEL
from server.assets.store import resolve
from server.stack import StackOptions, run_stack
from tests.bench.router import run_router

pytestmark = pytest.mark.slow

SLO = 2.0
TOKENS = 24
CALLERS = 16
SECONDS = 30.0


def requests(per_second: float, seconds: float) -> Iterator[Request]:
    """Prompts of which none is in a cache."""
    words = Message("user", " ".join(["river", "stone", "window", "paper"] * 8))
    return (Request(n, n / per_second, (replace(words, content=f"{n} {words.content}"),), TOKENS) for n in range(int(per_second * seconds)))


def completed(run: Run) -> int:
    return sum(record.outcome is Outcome.COMPLETED for record in run.records)


@pytest.mark.timeout(500)
async def test_three_times_the_capacity_goes_down_or_is_refused_in_time() -> None:
    """Turns go down, labelled, or are refused with a time to come again, and none is lost. How soon first tokens come depends on what else
    the machine does; tests/unit/router/admission/test_first_tokens.py says it for a clock of its own."""
    folder = await asyncio.to_thread(resolve, DEFAULT_MODEL)
    async with run_stack(StackOptions()) as large, run_stack(StackOptions(engine={"max_num_seqs": "4"})) as small:
        common = {"path": str(folder), "shared_prefixes": True}
        models = [
            {**common, "name": "large", "workers": [large.worker], "slo_ttft_s": SLO, "smaller": "small"},
            {**common, "name": "small", "workers": [small.worker], "slo_ttft_s": SLO},
        ]
        async with run_router(folder, large.worker, small.worker, models=models, queue={"longest_wait_s": SLO / 2}) as router:
            async with ConverseTarget.open(ConverseOptions(router.target, streams=4, model="large", exact_length=True)) as target:
                alone = await Runner(target, Patience()).play_closed(requests(1000.0, 10.0), CALLERS, 10.0)
                capacity = completed(alone) / (alone.end - alone.begin)
                run = await Runner(target, Patience()).play_open(requests(3 * capacity, SECONDS))
            value = router.app.registry.get_sample_value
            labels = {"model": "large", "to_model": "small", "reason": "SATURATED"}
            downgraded = value("tidegate_downgraded_turns_total", labels) or 0
    answered = [r for r in run.records if r.outcome is Outcome.COMPLETED]
    refused = [r for r in run.records if r.outcome is Outcome.SHED]
    assert downgraded
    assert refused
    assert all(record.retry_after_s > 0 for record in refused)
    assert len(answered) + len(refused) == len(run.records)

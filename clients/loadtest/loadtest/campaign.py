"""One or several runs against one target, one after the other, and the result file that they make."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib.metadata import version

from rich.console import Console

from loadtest.measures import measure
from loadtest.progress import showing
from loadtest.request import Request
from loadtest.result import Load, Machine, Measures, Result, Slo
from loadtest.runner import Patience, Run, Runner
from loadtest.targets import Target
from loadtest.usage import ProcessSamples, sampling


@dataclass(frozen=True, slots=True)
class Stage:
    """One run; `seconds` is None when it is over with its requests."""

    load: Load
    requests: Iterable[Request]
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Campaign:
    """What is run; `processes` are the names and ids of those whose cost is told."""

    name: str
    target: str
    open_target: Callable[[], AbstractAsyncContextManager[Target]]
    stages: Sequence[Stage]
    workload: Mapping[str, str]
    slo: Slo = field(default_factory=Slo)
    patience: Patience = field(default_factory=Patience)
    warm_up_s: float = 0.0
    processes: Sequence[tuple[str, int]] = ()


async def run_campaign(campaign: Campaign, console: Console) -> Result:
    """Runs all stages."""
    machine = Machine.here(version("tidegate-loadtest"))
    async with campaign.open_target() as target:
        runs = [await _run_stage(campaign, stage, target, console) for stage in campaign.stages]
    return Result(campaign.name, campaign.target, dict(campaign.workload), campaign.slo, machine, runs)


async def _run_stage(campaign: Campaign, stage: Stage, target: Target, console: Console) -> Measures:
    runner = Runner(target, campaign.patience, warm_up_s=campaign.warm_up_s)
    harness = ProcessSamples("harness", os.getpid())
    processes = [ProcessSamples(name, pid) for name, pid in campaign.processes]
    async with showing(runner, f"{campaign.name} {stage.load}", console), sampling([harness, *processes]):
        run = await _play(runner, stage)
    return measure(run, stage.load, campaign.slo, harness, processes)


async def _play(runner: Runner, stage: Stage) -> Run:
    if stage.load.kind == "open":
        return await runner.play_open(stage.requests, stage.seconds)
    assert stage.seconds is not None, "a closed loop has a duration"
    return await runner.play_closed(stage.requests, int(stage.load.value), stage.seconds)

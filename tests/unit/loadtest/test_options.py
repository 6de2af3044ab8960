"""The options of `tidegate bench run`."""

from __future__ import annotations

import argparse
import io
from itertools import islice
from pathlib import Path

import pytest
from loadtest.campaign import run_campaign
from loadtest.cli import main
from loadtest.mocks.openai_mock import run_mock
from loadtest.options import add_run_options, read_campaign
from loadtest.result import Load, Result
from rich.console import Console


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_run_options(parser)
    return parser.parse_args(["tidegate://127.0.0.1:1", *arguments])


def test_rates_are_a_sweep() -> None:
    """A run for each, with its mean rate; each with prompts of its own."""
    campaign = read_campaign(parse("--rate", "10", "--rate", "5..15", "--rate", "10,30", "--duration", "8"))
    assert [stage.load for stage in campaign.stages] == [Load("open", 10), Load("open", 10), Load("open", 20)]
    texts = [next(iter(stage.requests)).messages for stage in campaign.stages]
    assert len(set(texts)) == 3


def test_callers_are_a_sweep() -> None:
    """With endless requests for each."""
    campaign = read_campaign(parse("--concurrency", "2,16"))
    assert [stage.load for stage in campaign.stages] == [Load("closed", 2), Load("closed", 16)]
    assert len(list(islice(campaign.stages[1].requests, 1000))) == 1000


def test_a_trace_is_one_run(tmp_path: Path) -> None:
    """It ends with its requests."""
    (tmp_path / "a.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.0,8,1\n2023-11-16 18:17:05.0,9,2\n")
    (stage,) = read_campaign(parse("--trace", str(tmp_path / "a.csv"), "--speed", "2")).stages
    assert (stage.load, stage.seconds, len(list(stage.requests))) == (Load("open", 2), None, 2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give one of"),
        (("--rate", "1", "--concurrency", "2"), "give one of"),
        (("--rate", "fast"), "a rate is"),
        (("--concurrency", "2,x"), "x"),
        (("--rate", "1", "--input", "0"), "a length is"),
        (("--rate", "1", "--process", "router"), "NAME=PID"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], says: str) -> None:
    """Before anything runs."""
    with pytest.raises(ValueError, match=says):
        read_campaign(parse(*arguments))


@pytest.mark.parametrize(
    "arguments", [["run", "ftp://x", "--rate", "1"], ["compare", "/nowhere.json"], ["run", "tidegate://x", "--rate", "x"]]
)
def test_the_command_says_what_is_wrong(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, with exit code 2."""
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("tidegate bench: ")


async def test_a_campaign_runs_its_stages(tmp_path: Path) -> None:
    """Against a mock, with the cost of a process."""
    async with run_mock(0.005) as (_, port):
        arguments = parse("--rate", "40", "--rate", "80", "--duration", "0.3", "--output", "5", "--model", "mock", "--process", "self=1")
        arguments.target = f"http://127.0.0.1:{port}"
        result = await run_campaign(read_campaign(arguments), Console(file=io.StringIO()))
    result.save(tmp_path / "a.json")
    assert Result.load(tmp_path / "a.json") == result
    assert [run.load.value for run in result.runs] == [40, 80]
    assert all(run.outcomes == {"completed": run.requests} for run in result.runs)
    assert all(cost.rss > 0 for cost in result.runs[0].processes)

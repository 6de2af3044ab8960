"""NVIDIA's aiperf against the HTTP door, as it is."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.router import Router
from tests.bench.tenants import entries, make_key
from tests.bench.whole import run_bench
from tests.bench.worker import Worker

PACKAGE = "aiperf==0.13.0"
HOME = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "tidegate" / PACKAGE
REQUESTS = 50
TOKENS = 20


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["chat", "completions"])
async def test_aiperf_counts_what_the_ledger_counts(chatml: Path, tmp_path: Path, kind: str) -> None:
    """With a key, eight streams at a time: all requests succeed, and tokens told, counted by its own tokenizer and booked are the same."""
    program = await install()
    async with run_bench(chatml, Worker(chatml, lambda request: ["a"] * request.max_new_tokens), auth={}) as router:
        told = await profile(program, router, kind, await make_key(router), tmp_path)
        booked = await entries(router, "acme")
    assert (told["request_count"]["avg"], told["error_summary"]) == (REQUESTS, [])
    assert {entry.completion_tokens for entry in booked} == {TOKENS}
    made, asked = REQUESTS * TOKENS, sum(entry.prompt_tokens for entry in booked)
    assert len(booked) == REQUESTS
    assert (told["total_usage_prompt_tokens"]["avg"], told["total_usage_completion_tokens"]["avg"]) == (asked, made)
    assert told["output_sequence_length"]["sum"] == made


async def profile(program: Path, router: Router, kind: str, key: str, folder: Path) -> Any:
    """Its report."""
    target = f"-m test --url http://{router.http} --endpoint-type {kind} --streaming --api-key {key}"
    load = f"--concurrency 8 --request-count {REQUESTS} --synthetic-input-tokens-mean 40 --output-tokens-mean {TOKENS}"
    rest = f"--extra-inputs ignore_eos:true --tokenizer {router.app.config.models[0].path} --ui none --no-gpu-telemetry"
    code, output = await run(str(program), "profile", *f"{target} {load} {rest} --artifact-dir {folder}".split())
    assert code == 0, output[-3000:]
    return json.loads((folder / "profile_export_aiperf.json").read_text())


async def install() -> Path:
    """The program, fetched into an environment of its own when it is not there: about 1.2 GB."""
    program = HOME / "bin/aiperf"
    if not program.exists():
        for command in ((sys.executable, "-m", "venv", str(HOME)), (str(HOME / "bin/pip"), "install", "--quiet", PACKAGE)):
            code, output = await run(*command)
            assert code == 0, f"pip could not install aiperf: {output[-300:]}"
    return program


async def run(*command: str) -> tuple[int, str]:
    """A command's exit code and output, out of our own packages' way."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()

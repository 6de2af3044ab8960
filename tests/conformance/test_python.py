"""The Python SDK does what the table says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tidegate import Client

from tests.conformance.runner import Control, play
from tests.conformance.sync_face import SyncClient
from tests.conformance.table import load_cases

ROOT = Path(__file__).parents[2]
CASES = load_cases()
FACES = {"async": Client, "sync": SyncClient}
QUICK = (
    "streaming: deltas joined",
    "scope exit",
    "errors: a failed turn",
    "structured: the answer",
    "tools: a call is run",
    "session: two turns",
)
"""What is played with the synchronous client too, always: it is the asynchronous one behind a thin face."""


def plays() -> Iterator[Any]:
    """Each case with each client."""
    for name in CASES:
        yield pytest.param(name, "async", id=f"{name} [async]")
        yield pytest.param(name, "sync", id=f"{name} [sync]", marks=() if name.startswith(QUICK) else pytest.mark.slow)


@pytest.fixture(scope="module")
def harness() -> Iterator[dict[str, str]]:
    """The harness as other languages start it: addresses of the router and of the control endpoint."""
    path = os.pathsep.join([str(ROOT / "tests/bench/triton"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "tests.conformance.serve"]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.stdin.close()


@pytest.mark.parametrize(("name", "face"), list(plays()))
async def test_a_case_of_the_table(harness: dict[str, str], name: str, face: str) -> None:
    """What the caller sees, and what the workers see of it."""
    assert not await play(CASES[name], harness["target"], Control(harness["control"]), FACES[face])

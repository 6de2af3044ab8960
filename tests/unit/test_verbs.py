"""What the suite itself promises: a missing toolchain is seen, and a busy machine is made and left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.busy import BURN, main
from tests.missing import missing

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 2)])
@pytest.mark.parametrize(("verb", "tool"), [("test-sdk-go", "GO"), ("test-sdk-ts", "NPM")])
def test_a_toolchain_that_is_missing_is_said_and_fails_in_ci(verb: str, tool: str, ci: str, code: int) -> None:
    """No SDK counts as tested on a machine that could not test it."""
    command = ("make", "--no-print-directory", "-o", "install", verb, f"{tool}=", f"CI={ci}")
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, "NOT TESTED: " in ended.stderr) == (code, True)


@pytest.mark.parametrize(("ci", "end"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_a_test_that_lacks_a_tool_fails_in_ci(monkeypatch: pytest.MonkeyPatch, ci: str, end: type[BaseException]) -> None:
    """Elsewhere it is skipped, with the reason."""
    monkeypatch.setenv("CI", ci)
    with pytest.raises(end, match="NOT TESTED: a client: it is not here"):
        missing("a client", "it is not here")


def test_the_busy_machine_ends_as_its_command_did() -> None:
    """And nothing burns on."""
    assert main([sys.executable, "-c", "raise SystemExit(3)"]) == 3
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert not [pid for pid in children if BURN.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]

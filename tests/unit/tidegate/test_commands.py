"""The `tidegate` command as a person has it: no traceback, and a line that says what to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

NOBODY = "127.0.0.1:1"
PROGRAM = """
import signal, sys
from tidegate.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever runs the tests may ignore it
sys.exit(main())
"""


def run_command(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `tidegate` with nothing to read."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **(environment or {})},
        check=False,
        timeout=60,
    )


def test_ctrl_c_ends_a_command_without_a_traceback(tmp_path: Path) -> None:
    """The code is 130, as of any program that SIGINT ends."""
    key = tmp_path / "key"
    os.mkfifo(key)
    command = [sys.executable, "-c", PROGRAM, "admin", "--target", NOBODY, "--key-file", str(key), "tenant", "list"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        with key.open("w") as waited_for:  # is open when the command reads it
            process.send_signal(signal.SIGINT)
            waited_for.write("tg_key")
        _, words = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in words


def test_a_command_that_is_not_there_is_named() -> None:
    """Beside the list of those that are."""
    done = run_command("chatt")
    assert done.returncode == 2
    assert "there is no command 'chatt'" in done.stderr
    assert "tidegate chat\n" in done.stderr


@pytest.mark.parametrize(
    ("target", "key", "words"),
    [("gateway.example:8500", "tg_secret", "unencrypted; give --tls"), (NOBODY, "two words", "this is not a key")],
)
def test_a_key_that_chat_cannot_send_is_said_in_a_line(target: str, key: str, words: str) -> None:
    """In words of the command line, not those of the Python client."""
    done = run_command("chat", "--target", target, environment={"TIDEGATE_KEY": key})
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr

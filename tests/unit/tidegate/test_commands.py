"""The `tidegate` command as a person has it: no traceback, and a line that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

NOBODY = "127.0.0.1:1"
PROGRAM = "import sys; from tidegate.cli import main; sys.exit(main())"
INTERRUPTED = """
import os, signal, sys, threading
from tidegate.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever runs the tests may ignore it
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
sys.exit(main())
"""


def run_command(*arguments: str, environment: Mapping[str, str] | None = None, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    """Runs `tidegate` with nothing to read."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **(environment or {})},
        check=False,
        timeout=60,
    )


def test_ctrl_c_ends_a_command_without_a_traceback() -> None:
    """The code is 130, as of any program that SIGINT ends."""
    done = run_command("bench", "run", f"tidegate://{NOBODY}", "--rate", "1", program=INTERRUPTED)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


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

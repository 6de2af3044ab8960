"""The `tidegate` command as a person has it: no traceback, and a line that says what to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest
from tidegate.cli import GROUP

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
    assert "there is no command 'chatt'; did you mean chat?" in done.stderr


def test_every_command_is_listed_with_words() -> None:
    """Those of all packages that are installed; --help and --version end with 0."""
    done, told = run_command("--help"), run_command("--version")
    assert (done.returncode, told.returncode) == (0, 0)
    commands = {point.name for point in entry_points(group=GROUP)}
    _, _, listed = done.stdout.partition("\n\n")
    assert commands == {line.split()[0] for line in listed.splitlines() if len(line.split()) > 1}
    assert told.stdout == f"tidegate {version('tidegate')}\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("chat --targt x", "unrecognized arguments: --targt x; did you mean --target?"),
        ("admin tenants", "; did you mean tenant?"),
        ("admin quota set acme --tokens-per-dy 5", "; did you mean --tokens-per-day?"),
        ("router x.toml --print-cnfig", "; did you mean --print-config?"),
        ("up --http-prot=1", "; did you mean --http-port?"),
        ("up --profile=fats", "; did you mean fast?"),
    ],
)
def test_what_is_mistyped_is_named_with_what_was_meant(line: str, words: str) -> None:
    """An option or a word, of a command or of its subcommand."""
    done = run_command(*line.split())
    assert done.returncode == 2
    assert words in done.stderr


def test_admin_without_a_key_says_how_to_get_one(tmp_path: Path) -> None:
    """In one line, and nobody is asked."""
    done = run_command("admin", "tenant", "list", environment={"TIDEGATE_KEY": ""})
    assert done.returncode == 2
    assert done.stderr.startswith("tidegate admin: no key: set TIDEGATE_KEY or give --key-file")
    assert "--new-operator-key" in done.stderr
    assert done.stderr.count("\n") == 1


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

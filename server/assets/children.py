"""Running a tool as a child process: its output kept for the error message, the caller told as its files grow."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from server.assets.progress import Report

POLL_SECONDS = 0.2
PACKAGE_ROOT = Path(__file__).parents[2]


class ChildError(Exception):
    """The child failed; the message is the last thing it said."""


def run_child(command: Sequence[str], folder: Path, report: Report, extra_env: Mapping[str, str]) -> str:
    """Run a command that writes into `folder` and return what it printed.

    `report` gets the size of the folder a few times a second. The child is killed when the caller is interrupted.

    Raises:
        OSError: the child ran out of disk (ENOSPC).
        ChildError: it failed otherwise.
    """
    environment = os.environ | extra_env
    with tempfile.TemporaryFile() as log:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=PACKAGE_ROOT) as child:
            try:
                while _is_running(child):
                    report(folder_size(folder))
            except BaseException:
                child.kill()
                raise
        log.seek(0)
        text = log.read().decode("utf-8", errors="replace").strip()
    if child.returncode != 0:
        raise _explain(child.returncode, text)
    return text


def folder_size(folder: Path) -> int:
    """Return the bytes in all files under a folder that another process may be changing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                continue
    return total


def _is_running(child: subprocess.Popen[bytes]) -> bool:
    try:
        child.wait(POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False


def _explain(status: int, text: str) -> Exception:
    if os.strerror(errno.ENOSPC) in text:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = text.splitlines() or [f"no output, exit status {status}"]
    said = next((line for line in reversed(lines) if line.startswith("ERROR: ")), lines[-1])
    return ChildError(said.removeprefix("ERROR: ").rstrip("."))

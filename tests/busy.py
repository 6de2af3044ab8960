"""Runs a command while every core is kept busy by something else: `python -m tests.busy COMMAND...`, which exits as the command does."""

from __future__ import annotations

import os
import subprocess
import sys

BURN = """
import os, time
parent, end = os.getppid(), time.monotonic() + 3 * 3600
while os.getppid() == parent and time.monotonic() < end:
    sum(range(100_000))
"""
"""Ends with its parent, whichever way that goes."""


def main(command: list[str]) -> int:
    burners = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(os.cpu_count() or 1)]
    try:
        return subprocess.call(command)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

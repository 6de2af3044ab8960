"""Become another program, which the kernel kills when the thread that started this one ends.

    python die_with_parent.py PARENT_PID PROGRAM [ARGUMENT...]

`preexec_fn` could do the same, but it runs Python between fork and exec, where a process that has threads may deadlock.
Run by its path, without importing anything of ours: it stands between the launcher and the server it starts.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def bind_to_parent(command: Sequence[str]) -> tuple[str, ...]:
    """The command that runs `command` so that it is killed when the thread that starts it ends."""
    return (sys.executable, "-IS", __file__, str(os.getpid()), *command)


def die_with(parent: int) -> None:
    """Kills this process when `parent` has ended: for one that was not started by `bind_to_parent`, as Triton's stubs are not."""

    def wait() -> None:
        select.select([handle], [], [])
        os.kill(os.getpid(), signal.SIGKILL)

    handle = os.pidfd_open(parent)
    threading.Thread(target=wait, name="die-with-parent", daemon=True).start()


def main(argv: list[str]) -> None:
    """Replace this process by `argv[1:]`, or exit if the parent, `argv[0]`, has already gone."""
    # SIGKILL: Triton can hang in an orderly exit, and nobody would be left to notice.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # A parent that died before the call above is not told of to anybody.
    if os.getppid() != int(argv[0]):
        sys.exit("the launcher has gone")
    os.execv(argv[1], argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])

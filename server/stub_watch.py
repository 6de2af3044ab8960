"""Triton's Python backend runs a model in a stub, a process of its own.

When one is killed whose model is decoupled, Triton (2.51) starts no other: the model stays READY, and every request to it fails. So whoever
starts Triton looks whether its stubs are still there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

_STUB = "triton_python_b"
"""As the kernel tells a process's name, of which it keeps 15 characters."""
_PERIOD_S = 0.5

logger = logging.getLogger("tidegate.serve")


async def watch_stubs(triton: int, on_lost: Callable[[], None]) -> None:
    """Calls `on_lost` once a stub that the Triton with this process id had is gone, and returns."""
    stubs: set[int] = set()
    while True:
        now = find_stubs(triton)
        if lost := stubs - now:
            logger.error("the process %d that ran a model has died, and Triton goes on without it: it is ended", min(lost))
            on_lost()
            return
        stubs |= now
        await asyncio.sleep(_PERIOD_S)


def find_stubs(parent: int) -> set[int]:
    """The stubs that a process has and that live."""
    lists = Path(f"/proc/{parent}/task").glob("*/children")
    children = {int(child) for it in lists for child in _read(it).split()}
    return {child for child in children if _read(Path(f"/proc/{child}/comm")).startswith(_STUB) and not _is_dead(child)}


def _is_dead(process: int) -> bool:
    """Whether it has ended, though nobody has asked for its exit code yet."""
    return _read(Path(f"/proc/{process}/stat")).rpartition(")")[2].split()[:1] in ([], ["Z"])


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

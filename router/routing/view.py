"""A worker as operators see it."""

from __future__ import annotations

from typing import NamedTuple

from router.model import WorkerLoad
from router.routing.table import Phase
from router.upstream.worker import Worker


class WorkerView(NamedTuple):
    """A worker at one moment. `phase` is None for an address that was drained and has no worker.

    `slots`, `load` and what it is are as the worker tells, of all routers; `running` are this router's turns there. `pace` is how long its
    turns take against what is usual, `prefix_error` by how many blocks guesses of what it has cached are off.
    """

    address: str
    phase: Phase | None = None
    up: bool = False
    ejected: bool = False
    silence_s: float = 0.0
    engine: str = ""
    profile: str = ""
    slots: int = 0
    load: WorkerLoad = WorkerLoad()
    running: int = 0
    pace: float = 1.0
    prefix_error: float = 0.0


def view_worker(worker: Worker, phase: Phase | None, *, ejected: bool, pace: float, prefix_error: float) -> WorkerView:
    """A worker as it is now."""
    told = worker.description
    return WorkerView(
        worker.address,
        phase,
        worker.up,
        ejected,
        worker.silence_s,
        told.engine if told else "",
        told.profile if told else "",
        told.max_sequences if told else 0,
        worker.load,
        worker.running,
        pace,
        prefix_error,
    )

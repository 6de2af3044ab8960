"""Progress as this package reports it: a bar per step, fed by a function that is told the bytes done so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.progress import Progress

Report: TypeAlias = Callable[[int], None]
"""Told the bytes done so far, as often as convenient."""


@contextmanager
def show_step(progress: Progress, title: str, total: int | None = None) -> Iterator[Report]:
    """Show one step while the block runs; without `total`, in bytes, the bar only pulses until the end."""
    task = progress.add_task(title, total=total)
    yield lambda done: progress.update(task, completed=done)
    done = progress.tasks[progress.task_ids.index(task)].completed
    # A download's size is an estimate, and a quick step reports nothing: what has ended shows as full.
    progress.update(task, total=done or 1, completed=done or 1)

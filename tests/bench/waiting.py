"""Waiting for a condition, for what happens on another thread or machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from inspect import isawaitable


async def until(condition: Callable[[], object], within_s: float = 30.0) -> None:
    """Returns when the condition holds, which may be a coroutine function's; fails when it does not in time."""
    deadline = time.monotonic() + within_s
    while not (await held if isawaitable(held := condition()) else held):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.005)

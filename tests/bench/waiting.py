"""Waiting for a condition, for what happens on another thread or machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """Returns when the condition holds; fails when it does not in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.005)

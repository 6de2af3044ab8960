"""How late the harness itself is. What it adds to a measured time is no fault of the server, so it is measured and told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loadtest.histogram import Histogram

PERIOD_S = 0.005


class LagMeter:
    """Asks the event loop to call back every 5 ms and notes how much later it does: bytes that came meanwhile waited as long."""

    def __init__(self) -> None:
        self.lags = Histogram()

    @asynccontextmanager
    async def measuring(self) -> AsyncIterator[None]:
        """Measures until left."""
        task = asyncio.create_task(self._measure())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _measure(self) -> None:
        while True:
            due = time.perf_counter() + PERIOD_S
            await asyncio.sleep(PERIOD_S)
            self.lags.add(time.perf_counter() - due)

"""The turns that run for KServe callers, whichever RPC asked for them."""

from __future__ import annotations

import asyncio
import logging
import time

from router.errors import describe_fault, draining, internal
from router.model import Call, Failed
from router.pipeline import Pipeline
from router.transport.kserve.answers import Reply
from router.transport.kserve.statistics import Statistics
from router.transport.turns import drain_turns

log = logging.getLogger("tidegate.transport")


class Turns:
    """Starts turns, counts them, and ends them when the router goes."""

    def __init__(self, pipeline: Pipeline, statistics: Statistics) -> None:
        self._pipeline = pipeline
        self._statistics = statistics
        self._running: set[asyncio.Task[None]] = set()
        self._draining = False

    def require_open(self) -> None:
        """Raises RouterError DRAINING when no more turns are taken."""
        if self._draining:
            raise draining()

    def start(self, call: Call, reply: Reply) -> asyncio.Task[None]:
        """Starts the turn of a reply, whose end is in it when the task is done. Raises RouterError DRAINING."""
        self.require_open()
        task = asyncio.create_task(self._run(call, reply))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def close(self) -> None:
        """Takes no more."""
        self._draining = True

    async def drain(self, grace_s: float) -> None:
        """Lets the running turns finish for `grace_s` seconds, then ends them as failed."""
        await drain_turns(self._running, grace_s)

    async def _run(self, call: Call, reply: Reply) -> None:
        begun = time.perf_counter()
        try:
            await self._pipeline.run(call, reply.asked.turn, reply.put)
        except Exception as error:
            log.error("turn broke the pipeline; request %s: %s", call.request_id, describe_fault(error))
            reply.put([Failed(internal())])
        finally:
            self._statistics.record(reply.asked.served.name, begun, reply.started_at, failed=reply.failure is not None)

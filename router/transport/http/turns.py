"""The turns of HTTP requests: run beside each other, ended when their caller leaves, and drained when the router stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from router.errors import describe_fault, draining, internal
from router.model import Failed, TurnEvent, TurnRequest
from router.pipeline import Pipeline
from router.transport.http.exchange import Exchange
from router.transport.turns import cancel_turn, drain_turns

Put = Callable[[int, Sequence[TurnEvent]], None]
"""Takes events of the turn with an index."""

log = logging.getLogger("tidegate.transport")


class TurnRunner:
    """All turns that run for HTTP requests."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._running: set[asyncio.Task[None]] = set()
        self._draining = False

    @asynccontextmanager
    async def running(self, exchange: Exchange, requests: Sequence[TurnRequest], put: Put) -> AsyncIterator[None]:
        """Runs a request's turns; each puts a terminal event. When left, or when the caller leaves, those that run on are cancelled and
        have left the engine when this returns. Raises RouterError DRAINING."""
        if self._draining:
            raise draining()
        turns = [asyncio.create_task(self._pipeline.run(exchange.call, it, partial(put, at))) for at, it in enumerate(requests)]
        for at, turn in enumerate(turns):
            turn.add_done_callback(partial(_check_end, partial(put, at)))
        self._running.update(turns)
        watch = asyncio.create_task(_cancel_when_gone(exchange, turns))
        try:
            yield
        finally:
            watch.cancel()
            for turn in turns:
                turn.cancel()
            await asyncio.wait({watch, *turns})
            self._running.difference_update(turns)

    async def drain(self, grace_s: float) -> None:
        """Takes no more turns, lets the running ones finish for `grace_s` seconds, then ends them as failed."""
        self._draining = True
        await drain_turns(self._running, grace_s)


async def _cancel_when_gone(exchange: Exchange, turns: Sequence[asyncio.Task[None]]) -> None:
    await exchange.wait_gone()
    for turn in turns:
        cancel_turn(turn)


def _check_end(put: Callable[[Sequence[TurnEvent]], None], turn: asyncio.Task[None]) -> None:
    """A turn always ends with an event: what broke the pipeline itself must not look like an answer that goes on for ever."""
    if not turn.cancelled() and (error := turn.exception()):
        log.error("a turn broke the pipeline: %s", describe_fault(error))
    put([Failed(internal())])

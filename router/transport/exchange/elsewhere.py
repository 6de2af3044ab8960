"""Turns of a stream that its former home still runs, as tasks of the session that has the stream now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from tidegate.v1.chat_service_pb2 import ConverseResponse
from tidegate.v1.event_pb2 import FINISH_REASON_TOOL_CALLS, Event

from router.errors import TidegateError, router_lost
from router.model import Failed, TextDelta
from router.transport.exchange.journals import AWAY
from router.transport.exchange.redis import RedisExchange
from router.transport.exchange.rest import Rest
from router.transport.session import Session

_CANCEL_S = 5.0
"""Time that the former home has to end a turn that is cancelled."""


class Elsewhere:
    """Passes on what is still told of some turns."""

    def __init__(self, session: Session, turns: Iterable[int], rest: Rest, exchange: RedisExchange) -> None:
        self._session = session
        self._outbox = session.outbox
        self._rest = rest
        self._exchange = exchange
        self._ended = {turn: asyncio.get_running_loop().create_future() for turn in turns}

    async def follow(self) -> None:
        """A task: returns when all is told."""
        while (frame := await self._rest.frames.get()) is not None:
            for event in ConverseResponse.FromString(frame).events:
                self._pass_on(event)
        for turn in list(self._ended):
            self._fail(turn, router_lost())
        await self._exchange.finish(self._rest)

    async def run(self, turn: int) -> None:
        """The task of one turn: like that of one that runs here, it ends behind the terminal event, and may be cancelled with a reason."""
        ended = self._ended[turn]
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError as cancelled:
            with suppress(*AWAY):
                await self._exchange.cancel(self._rest, turn)
            if cancelled.args and isinstance(reason := cancelled.args[0], TidegateError):
                self._fail(turn, reason)
            await asyncio.wait({ended}, timeout=_CANCEL_S)
            self._fail(turn, router_lost())
            raise

    def _pass_on(self, event: Event) -> None:
        if event.turn not in self._ended:
            return  # of the stream itself, or failed here before
        if event.HasField("text_delta"):
            self._outbox.put(event.turn, [TextDelta(event.text_delta.text)])
        else:
            self._outbox.pass_on(event)
        if event.finished.finish_reason == FINISH_REASON_TOOL_CALLS:
            self._session.strand(event.turn)  # what it has said is at the former home
        if event.HasField("finished") or event.HasField("failed"):
            self._end(event.turn)

    def _fail(self, turn: int, error: TidegateError) -> None:
        if turn in self._ended:
            self._outbox.put(turn, [Failed(error)])
            self._end(turn)

    def _end(self, turn: int) -> None:
        self._ended.pop(turn).set_result(None)

"""Streams that come to this router and go from it, on the side of its sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from tidegate.v1.chat_service_pb2 import Setup
from tidegate.v1.event_pb2 import Ready

from router.errors import CallerError, TidegateError, describe_fault, resume_unavailable, router_lost
from router.model import Failed
from router.transport.exchange.elsewhere import Elsewhere
from router.transport.exchange.journal import About, Journal, Owner
from router.transport.exchange.journals import AWAY, end_tasks
from router.transport.exchange.progress import Progress
from router.transport.exchange.redis import RedisExchange
from router.transport.exchange.rest import TAKEN, UNKNOWN
from router.transport.frame_log import FrameLog
from router.transport.session import Retention, Session

_PAUSE_S = 0.25
_WAIT_S = 10.0
"""Longest wait of a caller for its stream; the stream may arrive later."""

log = logging.getLogger("tidegate.transport")

Result = TypeVar("Result")


class Table(Protocol):
    """The streams at home here."""

    def make_session(self, request_id: str) -> Session:
        """A session for a stream that arrives."""

    def admit(self, session: Session) -> None:
        """A stream has arrived, and waits for its caller."""

    def dismiss(self, stream_id: str, attempt: int = 0) -> Session | None:
        """Takes a stream out, for this attempt of its caller to resume it, and ends the connection that has it.

        None when there is no such stream. Raises CallerError STREAM_TAKEN when a newer attempt came before.
        """


class Moves:
    """Brings streams here and gives them away."""

    def __init__(self, exchange: RedisExchange, table: Table, max_bytes: int) -> None:
        """`max_bytes` bounds a stream's log."""
        exchange.home = self
        self._exchange = exchange
        self._table = table
        self._max_bytes = max_bytes
        self._arriving: dict[tuple[str, Owner], asyncio.Task[None]] = {}
        self._leaving: dict[str, Session] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """What goes on until turns have ended that concern another router."""
        return set(self._tasks)

    async def publish(self, session: Session) -> None:
        """A stream that may be resumed is set up here. Other routers know of it when this returns, or Redis is away."""
        kept, setup = session.retention, session.setup
        assert kept is not None, "it may be resumed"
        assert setup is not None, "it is set up"
        serialised = setup.SerializeToString(), session.ready.SerializeToString()
        about = About(kept.stream_id, kept.owner, session.request_id, kept.keep_s, *serialised)
        kept.journal = await self._exchange.open(about, kept.log, Progress())

    def withdraw(self, session: Session) -> None:
        """A stream is over."""
        if session.retention is not None and session.retention.journal is not None:
            self._exchange.close(session.retention.journal)

    async def bring(self, stream_id: str, owner: Owner, attempt: int) -> None:
        """Has a stream arrive. Raises CallerError STREAM_UNKNOWN and STREAM_TAKEN, and RouterError RESUME_UNAVAILABLE."""
        arriving = self._arriving.get((stream_id, owner))
        if is_first := arriving is None:
            arriving = self._arriving[stream_id, owner] = self._spawn(self._arrive(stream_id, owner, attempt))
            arriving.add_done_callback(lambda _: self._arriving.pop((stream_id, owner)))
        await asyncio.wait({arriving}, timeout=_WAIT_S)
        if not arriving.done():
            raise resume_unavailable()
        with nullcontext() if is_first else suppress(CallerError):  # what an older attempt is refused this one may get
            await arriving

    def release(self, stream_id: str, router: str, key: str, attempt: int) -> None:
        """See Home."""
        if key not in self._leaving:
            self._spawn(self._leave(stream_id, router, key, attempt))

    def cancel(self, key: str, turn: int) -> None:
        """See Home."""
        session = self._leaving.get(key)
        if session is not None and turn:
            session.cancel(turn)
        elif session is not None:
            session.cancel_turns(router_lost())

    def lose(self, stream_id: str) -> None:
        """See Home."""
        if (session := self._table.dismiss(stream_id)) is not None:
            self._spawn(session.close())

    def cancel_turns(self, error: TidegateError) -> None:
        """Ends the turns of streams that have gone as failed."""
        for session in self._leaving.values():
            session.cancel_turns(error)

    async def close(self) -> None:
        """Gives up what has not ended."""
        await end_tasks(self.tasks)

    async def _arrive(self, stream_id: str, owner: Owner, attempt: int) -> None:
        arrival = await self._exchange.fetch(stream_id, owner, attempt)
        about, progress = arrival.about, arrival.progress
        frames = FrameLog(self._max_bytes, last=arrival.last, frames=arrival.frames)
        journal = self._exchange.go_on(about, frames, progress)
        retention = Retention(stream_id, owner, about.keep_s, frames, journal, attempt)
        session = self._table.make_session(about.request_id)
        session.restore(Setup.FromString(about.setup), Ready.FromString(about.ready), retention, progress)
        if arrival.rest is None:
            for turn in progress.running:
                session.outbox.put(turn, [Failed(router_lost())])
        else:
            elsewhere = Elsewhere(session, progress.running, arrival.rest, self._exchange)
            for turn in progress.running:
                session.adopt(turn, elsewhere.run(turn))
            self._spawn(elsewhere.follow())
        self._table.admit(session)

    async def _leave(self, stream_id: str, router: str, key: str, attempt: int) -> None:
        if arriving := {task for (arriving, _), task in self._arriving.items() if arriving == stream_id}:
            await asyncio.wait(arriving)
        try:
            session = self._table.dismiss(stream_id, attempt)
        except CallerError:
            await _persist(partial(self._exchange.deny, key, TAKEN))
            return
        if session is None:
            await _persist(partial(self._exchange.deny, key, UNKNOWN))
            return
        assert session.retention is not None, "it is kept"
        assert session.retention.journal is not None, "it was published"
        self._leaving[key] = session
        try:
            await self._hand_over(session, session.retention.journal, router, key)
        finally:
            del self._leaving[key]
            await session.close()

    async def _hand_over(self, session: Session, journal: Journal, router: str, key: str) -> None:
        session.number_waiting()
        if not await _persist(partial(self._exchange.hand_over, journal, router, key)):
            return
        session.finish_input()
        number = 0
        while (frame := await session.outbox.take()) is not None:
            number += 1
            await _persist(partial(self._exchange.pass_on, router, key, number, frame.SerializeToString()))
        await _persist(partial(self._exchange.pass_on, router, key, number + 1, b""))

    def _spawn(self, run: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(run)
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return task

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and not isinstance(error, TidegateError):
            log.error("a stream was lost between routers: %s", describe_fault(error))


async def _persist(call: Callable[[], Awaitable[Result]]) -> Result:
    """Calls until Redis answers."""
    while True:
        try:
            return await call()
        except AWAY:
            await asyncio.sleep(_PAUSE_S)

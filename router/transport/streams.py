"""All Converse streams of this router, whatever door they came by: those that have a connection, and those that wait for their caller.

A stream whose setup has `resume_for` is kept: its frames are logged under their numbers (frame_log.py), and when its connection goes, for
whatever reason but a fault of the caller's own, its session with all running turns stays for that time. What it has to say meanwhile waits
in its outbox, where texts are joined. A connection that asks for the stream gets what it has missed from the log and the rest from the
outbox. It need not wait for the router to find the old connection dead: the newest connection has the stream, the other one is ended. The
newest is the one with the highest number that the caller gave it, since one that was begun earlier may arrive later.

The end of a connection says little. A lost one may look half-closed, and one that ended well on this side may have lost its last frames on
the way. So a kept stream that has ended stays for its time too, and a connection that takes it up opens it again: whoever wants no more
input half-closes once more. A caller that has all it wants says so (`leave`): its stream is kept no more. Of those whose callers did not,
the ones whose connections ended well make room when there is none.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from tidegate.v1.chat_service_pb2 import ConverseRequest, Resume
from tidegate.v1.event_pb2 import Heartbeat

from router import config
from router.errors import TidegateError, draining, reader_too_slow, stream_taken, stream_unknown
from router.model import Call
from router.pipeline import Pipeline
from router.telemetry import Metrics
from router.transport.connection import Connection
from router.transport.exchange.journal import Owner
from router.transport.exchange.moves import Moves
from router.transport.exchange.redis import RedisExchange
from router.transport.frame_log import FrameLog
from router.transport.session import Retention, Session
from router.transport.turns import LEAVE_S
from router.transport.writer import Write


class Streams:
    """Serves streams and keeps those that may be resumed."""

    def __init__(
        self,
        pipeline: Pipeline,
        limits: config.Limits,
        timeouts: config.Timeouts,
        resume: config.Resume,
        metrics: Metrics,
        *,
        exchange: RedisExchange | None,
    ) -> None:
        self._pipeline = pipeline
        self._limits = limits
        self._timeouts = timeouts
        self._resume = resume
        self._metrics = metrics
        self._moves = Moves(exchange, self, resume.max_bytes_per_stream) if exchange else None
        self._connections: dict[Session, Connection] = {}
        self._kept: dict[str, Session] = {}
        self._detached: dict[Session, asyncio.Task[None]] = {}
        self._over: dict[Session, None] = {}
        self._ending = asyncio.Event()
        self._is_closed = False

    async def serve(self, requests: AsyncIterator[ConverseRequest], write: Write, call: Call, owner: Owner) -> None:
        """One connection, from its begin to its end; frames that are kept come to `write` serialised. Raises what it is to end with.

        Requests end where the caller half-closes. That it is gone is told by cancelling this, or by CallerLeft from either side.
        """
        connection = Connection(write, call, owner, Session(call, self._pipeline, self._limits))
        self._connections[connection.session] = connection
        self._metrics.streams.inc()
        try:
            await connection.run(requests, self._receive)
        finally:
            self._metrics.streams.dec()
            await self._leave(connection)

    async def drain(self, grace_s: float) -> None:
        """No new streams, and each ends when its running turns have, which fail after `grace_s` seconds. Until then it may be resumed."""
        self._ending.set()
        for session in [*self._connections, *self._detached]:
            session.announce_end(grace_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while running := self._tasks:
                    await asyncio.wait(running)
        self._cancel_turns(draining())
        await self._close()

    async def watch(self) -> None:
        """A task: sends heartbeats on quiet streams and ends connections whose caller does not read."""
        limits = self._timeouts
        while True:
            await asyncio.sleep(min(1.0, limits.heartbeat_s / 4, limits.slow_reader_s / 4))
            for session, connection in list(self._connections.items()):
                writer = connection.writer
                quiet = time.monotonic() - writer.changed
                if writer.writing and quiet > limits.slow_reader_s:
                    connection.interrupt(reader_too_slow())
                elif not writer.writing and quiet > limits.heartbeat_s:
                    session.outbox.put_stream_event(heartbeat=Heartbeat())

    def make_session(self, request_id: str) -> Session:
        """See Table."""
        return Session(Call(request_id), self._pipeline, self._limits)

    def admit(self, session: Session) -> None:
        """See Table. The stream is kept beyond the bound on streams: its caller was promised that."""
        assert session.retention is not None, "only streams that may be resumed travel"
        self._kept[session.retention.stream_id] = session
        self._detach(session, session.retention)

    def dismiss(self, stream_id: str, attempt: int = 0) -> Session | None:
        """See Table."""
        session = self._kept.get(stream_id)
        if session is None or session.retention is None:
            return None
        session.retention.note_attempt(attempt)
        del self._kept[stream_id]
        self._release(session)
        return session

    @property
    def _tasks(self) -> set[asyncio.Task[Any]]:
        """What must end before all streams have."""
        connected = {connection.writer.task for session, connection in self._connections.items() if session.setup is not None}
        return connected | set(self._detached.values()) | (self._moves.tasks if self._moves else set())

    def _cancel_turns(self, error: TidegateError) -> None:
        """Ends every running turn as failed with `error`."""
        for session in [*self._connections, *self._detached]:
            session.cancel_turns(error)
        if self._moves:
            self._moves.cancel_turns(error)

    async def _close(self) -> None:
        """Turns that were cancelled get a moment to leave the engine, and to be told of. No stream is kept any more."""
        self._is_closed = True
        if tasks := self._tasks:
            await asyncio.wait(tasks, timeout=LEAVE_S)
        if self._moves:
            await self._moves.close()

    async def _receive(self, connection: Connection, request: ConverseRequest) -> None:
        session = connection.session
        if not request.HasField("setup") or session.setup is not None:
            session.receive(request)
            if request.HasField("leave"):
                self._let_go(session)
        elif request.setup.HasField("resume"):
            await self._take_up(connection, request.setup.resume)
        elif self._ending.is_set():
            raise draining()
        else:
            await self._set_up(connection, request)

    async def _set_up(self, connection: Connection, request: ConverseRequest) -> None:
        session, asked_s = connection.session, request.setup.resume_for.ToTimedelta().total_seconds()
        if asked_s > 0 and self._has_room():
            stream_id = f"{session.request_id}.{secrets.token_urlsafe(18)}"
            frames = FrameLog(self._resume.max_bytes_per_stream)
            session.retention = Retention(stream_id, connection.owner, min(asked_s, self._resume.longest_s), frames)
        session.receive(request)
        if session.retention is not None:
            self._kept[session.retention.stream_id] = session
            if self._moves:
                await self._moves.publish(session)
            session.greet()

    def _has_room(self) -> bool:
        """Streams that ended well and are kept in case their last frames were lost make room for new ones, the oldest first."""
        while len(self._kept) >= self._resume.max_streams and (over := next(iter(self._over), None)):
            self._release(over)
            self._forget(over)
        return len(self._kept) < self._resume.max_streams

    def _let_go(self, session: Session) -> None:
        """The caller will not come back."""
        if session.retention is not None:
            del self._kept[session.retention.stream_id]
            if self._moves:
                self._moves.withdraw(session)
            session.retention = None

    async def _take_up(self, connection: Connection, wanted: Resume) -> None:
        while self._moves and wanted.stream_id not in self._kept:  # one that came may have gone on to yet another router
            if self._ending.is_set():
                raise draining()
            await self._moves.bring(wanted.stream_id, connection.owner, wanted.attempt)
        session = self._kept.get(wanted.stream_id)
        if session is None or session.retention is None or session.retention.owner != connection.owner:
            raise stream_unknown()
        session.retention.note_attempt(wanted.attempt)
        frames = session.retention.log.replay(wanted.after_sequence)
        self._release(session)
        del self._connections[connection.session]
        self._connections[session] = connection
        connection.move(session, [session.resume(connection.call, wanted.after_sequence), *frames])
        self._metrics.resumed_streams.inc()

    def _release(self, session: Session) -> None:
        """The stream is nobody's for this moment: neither a connection's, nor does its time run."""
        if (outliving := self._detached.pop(session, None)) is not None:
            self._over.pop(session, None)
            outliving.cancel()
        if (holder := self._connections.pop(session, None)) is not None:
            holder.interrupt(stream_taken())
        self._metrics.detached_streams.set(len(self._detached))

    async def _leave(self, connection: Connection) -> None:
        session = connection.session
        if self._connections.get(session) is not connection:
            return  # another has the stream
        del self._connections[session]
        if session.retention is not None and session.fault is None and not self._is_closed:
            self._detach(session, session.retention, ended=connection.has_ended)
        else:
            self._forget(session)
            await session.close()

    def _detach(self, session: Session, kept: Retention, *, ended: bool = False) -> None:
        """`ended`: its connection took all that it had to say."""
        self._detached[session] = asyncio.create_task(self._outlive(session, kept.keep_s))
        if ended and session.is_over:
            self._over[session] = None
        self._metrics.detached_streams.set(len(self._detached))

    async def _outlive(self, session: Session, keep_s: float) -> None:
        """A task: ends a stream whose caller does not come back in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(keep_s):
                await self._ending.wait()
                await session.wait_for_turns()
        self._forget(session)
        self._over.pop(session, None)
        await session.close()
        self._detached.pop(session, None)
        self._metrics.detached_streams.set(len(self._detached))

    def _forget(self, session: Session) -> None:
        """A stream that ends because the router does is left to the others."""
        if session.retention is None:
            return
        self._kept.pop(session.retention.stream_id, None)
        session.number_waiting()
        if self._moves and not (self._ending.is_set() and session.fault is None):
            self._moves.withdraw(session)

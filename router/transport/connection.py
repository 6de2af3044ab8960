"""One connection of a Converse stream, by whichever door: its messages go to a session, the session's frames come out.

Most streams have one connection from begin to end. A connection whose first message asks for an earlier stream leaves the session that it
was given, which nothing has happened to, for that stream's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

from tidegate.v1.chat_service_pb2 import ConverseRequest, ConverseResponse

from router.errors import TidegateError, describe_fault, internal
from router.model import Call
from router.transport.exchange.journal import Owner
from router.transport.requests import readable
from router.transport.session import Session
from router.transport.writer import CallerLeft, Write, Writer

log = logging.getLogger("tidegate.transport")


class Connection:
    """Reads and writes until the caller or the session ends."""

    def __init__(self, write: Write, call: Call, owner: Owner, session: Session) -> None:
        """`owner` is who calls."""
        self.call = call
        self.owner = owner
        self.session = session
        self.writer = Writer(write)
        self.has_ended = False
        """Whether all that was to be sent has been taken."""
        self._backlog: deque[ConverseResponse | bytes] = deque()
        self._reader: asyncio.Task[None] | None = None

    async def run(
        self, requests: AsyncIterator[ConverseRequest], receive: Callable[[Connection, ConverseRequest], Awaitable[None]]
    ) -> None:
        """Hands each message to `receive`, and returns when the session has no more frames. Raises what the call is to end with."""
        self._reader = asyncio.create_task(self._read(requests, receive))
        try:
            await self.writer.send_all(self)
            self.has_ended = True
            if self.session.fault is not None:
                raise self.session.fault
        finally:
            self._reader.cancel()

    async def take(self) -> ConverseResponse | bytes | None:
        """The next frame to write; None when no more come."""
        while True:
            if self._backlog:
                return self._backlog.popleft()
            session = self.session
            if (frame := await session.take()) is not None or session is self.session:
                return frame

    def move(self, session: Session, frames: list[ConverseResponse | bytes]) -> None:
        """Leaves the session for another, whose frames follow these."""
        left, self.session = self.session, session
        self._backlog.extend(frames)
        left.outbox.close()

    def interrupt(self, error: TidegateError | CallerLeft) -> None:
        """Ends the connection with an error at once, and lets no further message in."""
        if self._reader is not None:
            self._reader.cancel()
        self.writer.interrupt(error)

    async def _read(
        self, requests: AsyncIterator[ConverseRequest], receive: Callable[[Connection, ConverseRequest], Awaitable[None]]
    ) -> None:
        try:
            async for request in requests:
                await receive(self, readable(request))
            self.session.finish_input()
        except CallerLeft as left:
            self.interrupt(left)
        except TidegateError as error:
            self.session.fail(error)
        except Exception as error:
            log.error("reading a stream failed; request %s: %s", self.call.request_id, describe_fault(error))
            self.session.fail(internal())

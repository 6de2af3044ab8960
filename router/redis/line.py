"""A connection to Redis on which commands are sent without waiting for each other; replies come in their order.

redis-py opens it, with all that a URL may ask for, and hiredis reads what comes; between them nothing of theirs runs. A command through the
client costs a router 70 µs and more: it takes a connection from a pool, sets a timer and goes through a dozen coroutines. Here it is a
write and a callback, and all commands of one step of the event loop leave in one write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from hiredis import HiredisError, Reader, pack_command
from redis.asyncio import ConnectionPool

Command = tuple[str | int | bytes, ...]

_NO_MORE = object()


@dataclass(slots=True, eq=False)
class Asked:
    """A command, and who waits for its reply until `deadline`, in the time of the event loop."""

    command: Command
    reply: asyncio.Future[bytes]
    deadline: float
    was_sent: bool = False
    was_lost: bool = False
    """A connection was lost with it before."""


class Owner(Protocol):
    """Who uses lines."""

    def take(self, line: Line, asked: Asked, reply: Any) -> None:
        """A reply has come; errors of Redis are ReplyErrors."""

    def finish(self, line: Line) -> None:
        """All that was asked on a line is answered."""

    def lose(self, line: Line) -> None:
        """The connection is gone, with what flies."""


class Line(asyncio.Protocol):
    """Made by `open_line`."""

    def __init__(self, writer: asyncio.StreamWriter, owner: Owner) -> None:
        self.flying: deque[Asked] = deque()
        """What was asked and is not answered, in this order."""
        self._unsent: list[Asked] = []
        self._unsent_since = 0.0
        self._writer = writer  # which closes when nobody has it
        self._transport = writer.transport
        self._owner = owner
        self._reader = Reader(notEnoughData=_NO_MORE)

    def ask(self, asked: Asked) -> None:
        """Sends a command. Nothing is held back when Redis reads slowly: deadlines bound how much that can be."""
        if not self._unsent:
            loop = asyncio.get_running_loop()
            self._unsent_since = loop.time()
            loop.call_soon(self._flush)
        self._unsent.append(asked)
        self.flying.append(asked)

    def _flush(self) -> None:
        """One write for a step of the event loop: each wakes Redis, which costs more than all the rest."""
        step_s = asyncio.get_running_loop().time() - self._unsent_since
        for asked in self._unsent:
            asked.was_sent = True
            asked.deadline += step_s  # which was this router's doing, not that of Redis
        # hiredis declares a tuple of one.
        self._transport.write(b"".join([pack_command(asked.command) for asked in self._unsent]))  # type: ignore[arg-type]
        self._unsent.clear()

    def close(self) -> None:
        """What flies is not answered any more."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """From asyncio."""
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _NO_MORE:
                self._owner.take(self, self.flying.popleft(), reply)
        except (HiredisError, IndexError):  # no reply, or one to nothing
            self.close()
        if not self.flying:
            self._owner.finish(self)

    def connection_lost(self, error: Exception | None) -> None:
        """From asyncio."""
        self._unsent.clear()
        self._owner.lose(self)


async def open_line(pool: ConnectionPool, owner: Owner) -> Line:
    """Connects. Raises RedisError and OSError."""
    connection = pool.make_connection()  # type: ignore[no-untyped-call]
    await connection.connect()
    # The client has no public way to what it writes to.
    writer, connection._reader, connection._writer = connection._writer, None, None
    line = Line(writer, owner)
    writer.transport.set_protocol(line)
    return line

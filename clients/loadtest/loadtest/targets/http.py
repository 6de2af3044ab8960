"""A small HTTP/1.1 client that tells when bytes came: h11 on an asyncio transport.

The usual clients hand a body to a task that wakes when the event loop gets to it, and there the clock is read. Here the protocol's
`data_received`, which the loop calls as it reads the socket, only notes the moment; parsing follows when all sockets of this turn of the
loop have been read. So of many answers that come at once the last one's moment does not hold the parsing of the others.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast
from urllib.parse import urlsplit

import h11

IDLE_S = 3.0
"""Connections idle for longer are not used again: servers close them after five seconds or more, and it could cross with a request."""


class ConnectionBroken(Exception):
    """The connection could not be made, or ended; `reason` is UPPER_SNAKE."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ResponseReader(Protocol):
    """Takes one response. Moments are seconds of `time.perf_counter()`."""

    @property
    def wants_more(self) -> bool:
        """False to close the connection without waiting for the body's end."""
        ...

    def take_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Status and headers, whose names are in lower case."""
        ...

    def take_body(self, at: float, data: bytes) -> None:
        """A piece of the body."""
        ...

    def take_end(self, at: float) -> None:
        """The body is complete."""
        ...

    def break_off(self, at: float, reason: str) -> None:
        """The connection ended before the body did."""
        ...


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a server listens."""

    host: str
    port: int
    tls: bool

    @classmethod
    def of(cls, url: str) -> Origin:
        """That of an http or https URL. Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url}: must be http://HOST or https://HOST")
        tls = parts.scheme == "https"
        return cls(parts.hostname, parts.port or (443 if tls else 80), tls)


class Connection(asyncio.Protocol):
    """One connection; carries one exchange at a time."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._inbox: list[tuple[float, bytes]] = []
        self._reader: ResponseReader | None = None
        self._done = asyncio.Event()
        self._idle_since = 0.0

    @classmethod
    async def open(cls, origin: Origin) -> Connection:
        """Connects. Raises ConnectionBroken."""
        tls = ssl.create_default_context() if origin.tls else None
        try:
            _, connection = await asyncio.get_running_loop().create_connection(cls, origin.host, origin.port, ssl=tls)
        except OSError as error:
            raise ConnectionBroken("CONNECT_FAILED") from error
        return connection

    @property
    def is_reusable(self) -> bool:
        """Whether another exchange can begin."""
        open_ = self._transport is not None and not self._transport.is_closing()
        return open_ and self._http.our_state is h11.IDLE and time.perf_counter() - self._idle_since < IDLE_S

    def send(self, head: h11.Request, body: bytes, reader: ResponseReader) -> None:
        """Begins an exchange; its response goes to `reader`."""
        self._reader = reader
        self._done.clear()
        if self._transport is None or self._transport.is_closing():
            self._break_off("CONNECTION_LOST")
            return
        parts = [self._http.send(head), self._http.send(h11.Data(body)), self._http.send(h11.EndOfMessage())]
        self._transport.write(b"".join(part for part in parts if part))

    async def wait_done(self) -> None:
        """Returns when the exchange is over."""
        await self._done.wait()

    def close(self) -> None:
        """Ends the connection, and the exchange that runs on it."""
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not say that it is one
        self._idle_since = time.perf_counter()

    def data_received(self, data: bytes) -> None:
        self._note(data)

    def eof_received(self) -> None:
        self._note(b"")

    def connection_lost(self, error: Exception | None) -> None:
        self._note(b"")

    def _note(self, data: bytes) -> None:
        self._inbox.append((time.perf_counter(), data))
        if len(self._inbox) == 1:
            asyncio.get_running_loop().call_soon(self._digest)

    def _digest(self) -> None:
        inbox, self._inbox = self._inbox, []
        for at, data in inbox:
            if self._reader is not None:
                self._take(at, data)

    def _take(self, at: float, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            while self._reader is not None:
                event = self._http.next_event()
                if event in (h11.NEED_DATA, h11.PAUSED):
                    break
                self._take_event(at, event)
        except h11.RemoteProtocolError:
            self._break_off("CONNECTION_LOST" if not data else "NOT_HTTP")

    def _take_event(self, at: float, event: h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]) -> None:
        assert self._reader is not None
        match event:
            case h11.Response():
                self._reader.take_head(event.status_code, {name.decode(): value.decode("latin-1") for name, value in event.headers})
            case h11.Data():
                self._reader.take_body(at, bytes(event.data))
                if not self._reader.wants_more:
                    self._break_off("NOT_WANTED")
            case h11.EndOfMessage():
                self._reader.take_end(at)
                self._finish()
            case h11.ConnectionClosed():
                self._break_off("CONNECTION_LOST")

    def _finish(self) -> None:
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        self._idle_since, self._reader = time.perf_counter(), None
        self._done.set()

    def _break_off(self, reason: str) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.break_off(time.perf_counter(), reason)
        self.close()
        self._done.set()


class ConnectionPool:
    """Connections to one origin; those that are free are used again, newest first, and there is no limit to their number."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._free: list[Connection] = []
        self._taken: set[Connection] = set()

    async def take(self) -> Connection:
        """A connection of one's own. Raises ConnectionBroken."""
        while self._free:
            connection = self._free.pop()
            if connection.is_reusable:
                break
            connection.close()
        else:
            connection = await Connection.open(self._origin)
        self._taken.add(connection)
        return connection

    def give_back(self, connection: Connection) -> None:
        """Ends its use; it is closed unless its exchange is over and it can be used again."""
        self._taken.discard(connection)
        if connection.is_reusable:
            self._free.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Ends all."""
        for connection in (*self._free, *self._taken):
            connection.close()
        self._free.clear()

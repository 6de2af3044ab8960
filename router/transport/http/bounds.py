"""What connections may take, in size and time, and a WebSocket connection that keeps to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


@dataclass(frozen=True, slots=True)
class Bounds:
    """Times are in seconds."""

    max_connections: int
    max_header_bytes: int
    header_s: float
    body_s: float
    slow_reader_s: float


class Bounded(Protocol):
    """A connection that is looked at from time to time."""

    transport: asyncio.Transport

    def expire(self, now: float) -> None:
        """Ends it if something takes too long at `now`, by the loop's clock."""

    def shutdown(self) -> None:
        """Ends it when what it answers is answered."""


class ReaderWatch(asyncio.Protocol):
    """Before a protocol of uvicorn's among the bases, it notes since when the other side has not read what was written."""

    _unread_since: float | None = None

    def pause_writing(self) -> None:
        self._unread_since = asyncio.get_running_loop().time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    def is_unread(self, now: float, limit_s: float) -> bool:
        """Whether that has been too long."""
        return self._unread_since is not None and now - self._unread_since > limit_s


class WebSocketConnection(ReaderWatch, WebSocketsSansIOProtocol):
    """A WebSocket; uvicorn finds dead ones by pings, this one those who do not read."""

    def __init__(self, slow_reader_s: float, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._slow_reader_s = slow_reader_s

    def expire(self, now: float) -> None:
        """Ends it if the caller takes too long to read."""
        if self.is_unread(now, self._slow_reader_s):
            self.transport.abort()

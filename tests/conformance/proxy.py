"""A TCP proxy between SDK and router that cuts connections, refuses them, and sends new ones to another router than the old."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Proxy:
    """Listens on `port` of loopback; new connections go to `upstream`, host:port."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.port = 0
        self._server: asyncio.Server | None = None
        self._open: set[_Link] = set()

    async def open(self) -> None:
        """Listens; after a `close` on the same port as before."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Listens no more, and cuts what is open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    def cut(self, after_bytes: int = 0) -> None:
        """Cuts the open connections when so many more bytes have gone to the SDK."""
        for link in list(self._open):
            link.cut(after_bytes)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.upstream.rpartition(":")
        try:
            up_reader, up_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        link = _Link(writer, up_writer)
        self._open.add(link)
        try:
            await asyncio.gather(link.pump_down(up_reader), link.pump_up(reader))
        finally:
            self._open.discard(link)
            link.cut()


class _Link:
    """One connection of an SDK and the router's end of it."""

    def __init__(self, down: asyncio.StreamWriter, up: asyncio.StreamWriter) -> None:
        self._down = down
        self._up = up
        self._left: int | None = None

    def cut(self, after_bytes: int = 0) -> None:
        if after_bytes:
            self._left = after_bytes
            return
        self._down.transport.abort()
        self._up.transport.abort()

    async def pump_down(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if self._left is not None:
                    data, self._left = data[: self._left], self._left - len(data)
                self._down.write(data)
                await self._down.drain()
                if self._left is not None and self._left <= 0:
                    break
        await _end(self._down)
        self._up.transport.abort()

    async def pump_up(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                self._up.write(data)
                await self._up.drain()
        self._up.transport.abort()


async def _end(writer: asyncio.StreamWriter) -> None:
    """Closes behind what is still to be sent."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()

"""A TCP proxy that loses connections: at a chosen byte, or all at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Proxy:
    """Passes bytes between callers and `target` (host:port). `address` is where it listens; `cuts` counts the connections it has cut."""

    def __init__(self, target: str) -> None:
        self.address = ""
        self.cuts = 0
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._target = target
        self._left: int | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        """Listens until left."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self.cut()
            await server.wait_closed()

    def cut(self) -> None:
        """Resets all connections, on both sides."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self._left = None

    def freeze(self) -> None:
        """Nothing passes and nothing is closed, as when a cable is pulled."""
        self._thawed.clear()

    def thaw(self) -> None:
        """The cable is in again."""
        self._thawed.set()

    def cut_after(self, size: int) -> None:
        """Cuts when this many more bytes have passed to the caller, however few come at once."""
        self._left = size

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target.split(":"))
        self._writers |= {writer, back}
        tasks = [asyncio.create_task(self._pass(reader, back, down=False)), asyncio.create_task(self._pass(there, writer, down=True))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for end in (writer, back):
                end.transport.abort()
                self._writers.discard(end)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, down: bool) -> None:
        while data := await reader.read(65536):
            await self._thawed.wait()
            if down and self._left is not None and len(data) >= self._left:
                writer.write(data[: self._left])
                await asyncio.sleep(0)  # lets the last bytes out
                self.cuts += 1
                self.cut()
                return
            if down and self._left is not None:
                self._left -= len(data)
            writer.write(data)
            await writer.drain()

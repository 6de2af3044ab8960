"""A Redis that answers scripts only when it is told to."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from types import TracebackType

from hiredis import Reader


@dataclass(frozen=True)
class Received:
    """A script that has come, by its argument."""

    argument: bytes
    writer: asyncio.StreamWriter

    def reply(self, text: bytes) -> None:
        self.writer.write(b"+" + text + b"\r\n")

    def refuse(self, error: bytes) -> None:
        self.writer.write(b"-" + error + b"\r\n")

    def cut(self) -> None:
        """Closes the connection that it came on."""
        self.writer.close()


class FakeRedis:
    """On a unix socket, or encrypted on a port of this machine. Whatever is not a script gets OK."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._folder = TemporaryDirectory(dir="/tmp")  # not pytest's: a unix socket's path must be short
        self._path = f"{self._folder.name}/redis.sock"
        self._tls = tls
        self.greetings: list[list[bytes]] = []
        """What was not a script."""
        self._writers: list[asyncio.StreamWriter] = []
        self._received: asyncio.Queue[Received] = asyncio.Queue()

    async def __aenter__(self) -> FakeRedis:
        if self._tls is None:
            self._server = await asyncio.start_unix_server(self._serve, self._path)
        else:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", ssl=self._tls)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        self._folder.cleanup()

    @property
    def url(self) -> str:
        return f"unix://{self._path}"

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """How often somebody connected."""
        return len(self._writers)

    async def receive(self) -> Received:
        """The next script, in the order of coming."""
        return await self._received.get()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        commands = Reader()
        while data := await reader.read(65_536):
            commands.feed(data)
            while command := commands.gets():
                if command[0] == b"EVALSHA":
                    self._received.put_nowait(Received(command[-1], writer))
                else:
                    self.greetings.append(command)
                    writer.write(b"+OK\r\n")

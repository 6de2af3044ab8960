"""A small HTTP/1.1 caller, for what the usual clients would not send or show."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import h11

CHAT = "/v1/chat/completions"


@dataclass(slots=True)
class Response:
    """A response; `pieces` are the parts of its body as they came, `is_whole` tells whether it ended as HTTP wants."""

    status: int
    headers: dict[str, str]
    pieces: list[bytes] = field(default_factory=list)
    is_whole: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def data(self) -> list[str]:
        """The data of its server-sent events."""
        lines = self.body.decode("ascii").split("\n\n")
        return [line.removeprefix("data: ") for block in lines for line in block.split("\n") if line.startswith("data: ")]

    @property
    def chunks(self) -> list[Any]:
        """The events that are JSON."""
        return [json.loads(it) for it in self.data if it != "[DONE]"]

    @property
    def text(self) -> str:
        """The text that its chunks bring, of all choices."""
        parts = [choice for chunk in self.chunks for choice in chunk.get("choices", ())]
        return "".join(part.get("text") or part.get("delta", {}).get("content") or "" for part in parts)

    @property
    def is_done(self) -> bool:
        """Whether it says that it is a whole answer."""
        return self.data[-1:] == ["[DONE]"]


class Caller:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._http = h11.Connection(h11.CLIENT)

    async def ask(self, path: str = CHAT, value: Any = None, method: str = "", **headers: str) -> Response:
        """A whole exchange; `value` is sent as JSON, bytes as they are."""
        await self.begin(path, value, method, **headers)
        return await self.finish()

    async def begin(self, path: str = CHAT, value: Any = None, method: str = "", **headers: str) -> None:
        """Sends a request. Names of headers have dashes for underscores."""
        body = value if isinstance(value, bytes) else b"" if value is None else json.dumps(value).encode()
        given = {name.replace("_", "-"): text for name, text in headers.items()}
        told = {"host": "test", "content-type": "application/json", "content-length": str(len(body)), **given}
        request = h11.Request(
            method=method or ("GET" if value is None else "POST"),
            target=path,
            headers=[(name.encode(), text.encode("latin-1")) for name, text in told.items()],
        )
        parts = [self._http.send(request), self._http.send(h11.Data(body)), self._http.send(h11.EndOfMessage())]
        self.writer.write(b"".join(part for part in parts if part))
        await self.writer.drain()

    async def finish(self) -> Response:
        """Reads the response to its end."""
        response = await self.read_head()
        async for _ in self.read_body(response):
            pass
        return response

    async def read_head(self) -> Response:
        """Reads the response's status and headers."""
        event = await self._next_event()
        while isinstance(event, h11.InformationalResponse):
            event = await self._next_event()
        assert isinstance(event, h11.Response), event
        return Response(event.status_code, {name.decode(): value.decode() for name, value in event.headers})

    async def read_body(self, response: Response) -> AsyncIterator[bytes]:
        """The pieces of the body, which are added to the response too."""
        while isinstance(event := await self._next_event(), h11.Data):
            response.pieces.append(bytes(event.data))
            yield response.pieces[-1]
        response.is_whole = isinstance(event, h11.EndOfMessage)
        if response.is_whole and self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()

    async def _next_event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                data = await self.reader.read(65536)
                self._http.receive_data(data)
            except ConnectionError:
                return h11.ConnectionClosed()
        return event


@asynccontextmanager
async def connect(address: str, **options: Any) -> AsyncIterator[Caller]:
    """A connection to host:port; `options` are asyncio's."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), **options)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()


def chat(text: str = "hi", **options: Any) -> dict[str, Any]:
    """A chat request's body."""
    return {"messages": [{"role": "user", "content": text}], **options}


def small_window(address: str) -> socket.socket:
    """A connection whose kernel buffers hold little."""
    host, _, port = address.rpartition(":")
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect((host, int(port)))
    return made

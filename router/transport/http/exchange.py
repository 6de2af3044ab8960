"""One HTTP request and its response, over ASGI: the call's id and credentials, a body within bounds, an answer of one piece or many."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from router.auth.principal import Principal
from router.errors import CallerError, TidegateError, protocol_violated
from router.model import Credentials
from router.transport.http.errors import headers_of, status_of, to_json
from router.transport.http.headers import Headers
from router.transport.http.tls import Peer
from router.transport.requests import REQUEST_ID, describe_call
from router.transport.writer import CallerLeft

JSON = b"application/json"
_SHOWN, _MOST_SHOWN = re.compile(r"[A-Za-z0-9_.-]{1,64}"), 16
_UNBUFFERED = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
"""For proxies: pass each piece on as it comes."""


class Connection(Protocol):
    """What an exchange knows of its connection."""

    peer: Peer
    """What the other side has proved."""

    @property
    def is_ready(self) -> bool:
        """Whether it takes a piece now."""

    def write_piece(self, data: bytes) -> None:
        """Writes a piece of a body of events, without waiting."""

    def leave_unframed(self) -> None:
        """Before a body of events whose caller does not know chunked coding: it ends with the connection."""


class Exchange:
    """One request and its response; `principal` is who calls, once that was asked. `connection` is a way past ASGI."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
        self.headers = dict(headers)
        self.path: dict[str, Any] = scope.get("path_params", {})
        self.connection: Connection = scope["state"]["connection"]
        self.call = describe_call(headers, Credentials(headers, self.connection.peer))
        self.principal: Principal | None = None
        self._receive = receive
        self._send = send
        self._started = False
        self._own: Headers = []
        self._knows_chunks = scope["http_version"] != "1.0"

    async def read_body(self, most: int) -> bytes:
        """The whole body. Raises CallerError MEDIA_TYPE_UNSUPPORTED or MESSAGE_TOO_LARGE before reading it where the headers tell."""
        self._check_headers(most)
        pieces, size, more = [], 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise CallerLeft
            pieces.append(message["body"])
            size += len(pieces[-1])
            if size > most:
                raise _too_large(most)
            more = message["more_body"]
        return b"".join(pieces)

    async def wait_gone(self) -> None:
        """Returns when the caller has left, or has its whole answer. The body must have been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(self, body: bytes, *, status: int = 200, content_type: bytes = JSON, headers: Headers | None = None) -> None:
        """Sends a response of one piece."""
        length = (b"content-length", str(len(body)).encode())
        await self._start(status, content_type, [length, *(headers or ())])
        await self._send_body(body, more=False)

    async def answer_json(self, value: Any, *, status: int = 200, headers: Headers | None = None) -> None:
        """Sends a value as JSON."""
        await self.answer(json.dumps(value).encode(), status=status, headers=headers)

    def tell_ignored(self, names: Sequence[str]) -> None:
        """Has the response say in a header which options of the request have no effect."""
        shown = [name for name in names if _SHOWN.fullmatch(name)][:_MOST_SHOWN]
        self._own.append((b"x-tidegate-ignored", ", ".join(shown).encode()))

    async def refuse(self, error: TidegateError, headers: Headers | None = None) -> None:
        """Sends an error; when the response has begun that is too late, and its body stays visibly cut."""
        if not self._started:
            await self.answer(to_json(error), status=status_of(error), headers=[*headers_of(error), *(headers or ())])

    async def start_events(self, headers: Headers) -> None:
        """Begins a response of server-sent events."""
        if not self._knows_chunks:
            self.connection.leave_unframed()
        await self._start(200, b"text/event-stream; charset=utf-8", [*_UNBUFFERED, *headers])

    async def send(self, data: bytes, *, more: bool) -> None:
        """Sends a piece of the events that have begun; waits while the caller does not read."""
        if not self._knows_chunks:
            await self._send_body(b"", more=True)  # waits; the server would hold what it writes itself against a length
            self.connection.write_piece(data)
            data = b""
        await self._send_body(data, more=more)

    async def _send_body(self, data: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def _start(self, status: int, content_type: bytes, headers: Headers) -> None:
        self._started = True
        own = [(b"content-type", content_type), (REQUEST_ID.encode(), self.call.request_id.encode()), *self._own]
        await self._send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})

    def _check_headers(self, most: int) -> None:
        if self.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise protocol_violated("MEDIA_TYPE_UNSUPPORTED", "content-type", "the body must be application/json")
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            raise protocol_violated("MEDIA_TYPE_UNSUPPORTED", "content-encoding", "compressed bodies are not taken")
        if int(self.headers.get("content-length", 0)) > most:
            raise _too_large(most)


def _too_large(most: int) -> CallerError:
    return protocol_violated("MESSAGE_TOO_LARGE", "body", f"the body has more than {most} bytes")

"""An HTTP/1.1 connection: uvicorn's protocol with the bounds in size and time that it lacks.

A request's line and headers are bounded in bytes, its headers and its body in time; a caller that does not read what is written loses its
connection. A request that comes before the last one is answered is left to the client to repeat, as RFC 9112 allows: uvicorn would stop
reading for it, and then a caller that leaves could not be seen. An upgrade to anything but WebSocket is ignored, as RFC 9110 asks for:
uvicorn would drop the request's body, which Java's own client always sends with an upgrade to HTTP/2. Fields behind a body are dropped: for
uvicorn they are headers, which a proxy in front has never seen. A stream for HTTP/1.0 is not chunked: uvicorn's would be.
"""

from __future__ import annotations

import asyncio

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from router.errors import TidegateError, protocol_violated, too_many_connections
from router.transport.http.bounds import Bounds, ReaderWatch
from router.transport.http.errors import write_refusal
from router.transport.http.tls import Peer, peer_of

_LINGER_S = 1.0


class Connection(ReaderWatch, HttpToolsProtocol):
    """An HTTP/1.1 connection."""

    def __init__(self, config: Config, state: ServerState, bounds: Bounds) -> None:
        super().__init__(config, state, {})
        self.peer: Peer = {}
        self._bounds = bounds
        self._due: float | None = None
        self._in_head = True
        self._head_bytes = 0
        """Of the head; then those since the last piece of the body, which are no body either."""
        self._has_exchange = False
        """Whether what comes now belongs to a request that `cycle` answers; else `cycle`, if there is one, is of the request before."""
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        self.app_state = {"connection": self}  # in every scope's `state`
        self.peer = peer_of(transport)
        super().connection_made(transport)
        self._due = self.loop.time() + self._bounds.header_s
        if len(self.connections) > self._bounds.max_connections:
            self._refuse(too_many_connections(self._bounds.max_connections))

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._is_refused or self.transport.is_closing():
            return
        if self._is_answering:
            self.cycle.keep_alive = False
            return
        if self._due is None:
            self._due = self.loop.time() + self._bounds.header_s
        self._head_bytes += len(data)
        self._feed(data)
        if self._head_bytes > self._bounds.max_header_bytes:
            self._refuse(self._head_too_large())

    def expire(self, now: float) -> None:
        """Ends it if the caller takes too long to send or to read."""
        if self.is_unread(now, self._bounds.slow_reader_s):
            self.transport.abort()
        elif self._due is not None and now > self._due:
            if self._head_bytes or not self._in_head:
                self._refuse(protocol_violated("REQUEST_TIMEOUT", "body", "the request did not come in time"))
            else:
                self.transport.close()

    @property
    def is_ready(self) -> bool:
        """Whether it takes a piece now."""
        return not (self.flow.write_paused or self.transport.is_closing())

    def write_piece(self, data: bytes) -> None:
        """Writes a piece of the body that is under way, as the cycle's own `send` would."""
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self.cycle.chunked_encoding else data)

    def leave_unframed(self) -> None:
        """The body about to begin has neither a length nor chunks and ends with the connection; all of it is for `write_piece`."""
        self.cycle.chunked_encoding = False

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._is_answering:
            raise _Refused(None)
        self._in_head, self._has_exchange = True, False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._due = self.loop.time() + self._bounds.body_s
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > self._bounds.max_header_bytes:
            raise _Refused(self._head_too_large())
        if not self._is_foreign_upgrade:
            self._has_exchange = True
            super().on_headers_complete()
            if self.expect_100_continue:  # after an early answer nobody knows whether the body still comes
                self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_foreign_upgrade:
            self._due, self._head_bytes, self._has_exchange = None, 0, False
            super().on_message_complete()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    @property
    def _is_foreign_upgrade(self) -> bool:
        return self.parser.should_upgrade() and not self._should_upgrade()

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            self._refuse_callback(error.__context__)
        except httptools.HttpParserError:
            self._refuse(protocol_violated("REQUEST_UNREADABLE", "request", "this is not HTTP/1.1"))

    def _upgrade(self, rest: bytes) -> None:
        if self._should_upgrade():
            self.handle_websocket_upgrade()
            return
        head = [self.parser.get_method(), b" ", self.url, b" HTTP/1.1\r\n"]
        headers = [(name, value) for name, value in self.headers if name != b"upgrade"]
        if len(headers) == len(self.headers):
            self._refuse(protocol_violated("METHOD_NOT_ALLOWED", "request", "this is no proxy"))
            return
        for name, value in headers:
            head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(self)
        self._feed(b"".join([*head, b"\r\n", rest]))

    def _refuse_callback(self, cause: BaseException | None) -> None:
        if not isinstance(cause, _Refused):
            self._refuse(protocol_violated("REQUEST_UNREADABLE", "request", "its target is no path"))
        elif cause.error is not None:
            self._refuse(cause.error)
        else:
            self.cycle.keep_alive = False

    def _head_too_large(self) -> TidegateError:
        return protocol_violated("HEADERS_TOO_LARGE", "request", f"the headers have more than {self._bounds.max_header_bytes} bytes")

    def _refuse(self, error: TidegateError) -> None:
        """Answers what has no exchange yet, and ends the connection; one that is answered already just ends.

        What still comes is read for a while and dropped: a connection that is closed with unread data takes the answer with it.
        """
        if self._is_answering and not self._has_exchange:  # what follows the request that is being answered is no request
            self.cycle.keep_alive = False
            return
        is_answered = self._has_exchange and self.cycle.response_started
        if self._is_refused or is_answered:
            self.transport.abort()
            return
        self._is_refused, self._due = True, self.loop.time() + _LINGER_S
        if self._has_exchange:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(write_refusal(error))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()


class _Refused(Exception):
    """Stops the parser; without an error the request is one that came too early."""

    def __init__(self, error: TidegateError | None) -> None:
        super().__init__()
        self.error = error

"""The HTTP listener: uvicorn's connections on the router's own event loop, without uvicorn's Server, which takes over signals."""

from __future__ import annotations

import asyncio
import logging
from email.utils import formatdate
from functools import partial
from typing import cast

from starlette.types import ASGIApp
from uvicorn.config import Config as UvicornConfig
from uvicorn.server import ServerState

from router.config import Config, cannot_bind
from router.transport.http.bounds import Bounded, Bounds, WebSocketConnection
from router.transport.http.connection import Connection
from router.transport.http.tls import ServerTls

_BACKLOG = 2048


class HttpServer:
    """Serves an ASGI application."""

    def __init__(self, app: ASGIApp, config: Config) -> None:
        http = config.http
        self._listen = http.listen
        self._config_tls = config.tls
        self._tls: ServerTls | None = None
        self._state = ServerState()
        self._bounds = Bounds(
            http.max_connections, http.max_header_bytes, http.header_s, http.body_s, slow_reader_s=config.timeouts.slow_reader_s
        )
        self._uvicorn = UvicornConfig(
            app,
            http=Connection,
            ws=partial(WebSocketConnection, self._bounds.slow_reader_s),  # type: ignore[arg-type]  # makes one, which is all it is for
            ws_max_size=config.limits.max_message_bytes,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            log_level=logging.CRITICAL,  # it logs exceptions with their words, which may hold a prompt
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=http.keep_alive_s,
        )
        self._server: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def open(self) -> int:
        """Connections that are open."""
        return len(self._state.connections)

    async def start(self) -> str:
        """Listens; gives the address, host:port. Raises ConfigInvalid."""
        self._uvicorn.load()
        if self._config_tls:
            self._tls = ServerTls(self._config_tls)
        host, _, port = self._listen.rpartition(":")
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._connect, host.strip("[]"), int(port), backlog=_BACKLOG, ssl=self._tls.context if self._tls else None
            )
        except OSError:
            raise cannot_bind("http.listen", self._listen) from None
        self._watch = asyncio.create_task(self._watch_connections())
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self, grace_s: float) -> None:
        """Takes no more connections, lets answers under way finish for `grace_s` seconds, then cuts them."""
        assert self._server is not None, "started"
        assert self._watch is not None, "started"
        self._server.close()
        for connection in self._connections():
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=grace_s)
        for connection in self._connections():
            connection.transport.abort()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        self._watch.cancel()
        await asyncio.wait({self._watch})

    def _connect(self) -> Connection:
        return Connection(self._uvicorn, self._state, self._bounds)

    def _connections(self) -> list[Bounded]:
        return list(cast("set[Bounded]", self._state.connections))

    async def _watch_connections(self) -> None:
        """Ends connections that take too long, and keeps the date that responses tell."""
        bounds = self._bounds
        period_s = min(1.0, bounds.header_s / 4, bounds.body_s / 4, bounds.slow_reader_s / 4)
        while True:
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            now = asyncio.get_running_loop().time()
            for connection in self._connections():
                connection.expire(now)
            if self._tls:
                self._tls.refresh()
            await asyncio.sleep(period_s)

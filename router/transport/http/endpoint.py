"""A path's coroutines as an ASGI application. What they raise becomes a response here and nowhere else."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from starlette.types import Receive, Scope, Send

from router.errors import TidegateError, describe_fault, internal, protocol_violated
from router.transport.http.exchange import Exchange
from router.transport.writer import CallerLeft

Handler = Callable[[Exchange], Awaitable[None]]

log = logging.getLogger("tidegate.transport")


class Endpoint:
    """Handlers by method; HEAD is GET, whose body the server leaves out. With `admit`, callers who are nobody get no further than that."""

    def __init__(self, admit: Handler | None = None, **handlers: Handler) -> None:
        self._admit = admit
        self._handlers = handlers | ({"HEAD": handlers["GET"]} if "GET" in handlers else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        try:
            handle = self._find(scope["method"])
            if self._admit is not None:
                await self._admit(exchange)
            await handle(exchange)
        except CallerLeft:
            pass
        except TidegateError as error:
            await exchange.refuse(error)
        except Exception as error:  # its own words may hold a prompt or a key
            log.error("%s failed; request %s: %s", scope["path"], exchange.call.request_id, describe_fault(error))
            await exchange.refuse(internal())

    def _find(self, method: str) -> Handler:
        return self._handlers.get(method) or self._refuse_method

    async def _refuse_method(self, exchange: Exchange) -> None:
        allowed = ", ".join(sorted(self._handlers))
        error = protocol_violated("METHOD_NOT_ALLOWED", "method", f"this path takes {allowed}")
        await exchange.refuse(error, [(b"allow", allowed.encode())])

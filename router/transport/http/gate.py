"""Who calls over HTTP, asked before anything of a request's body is read."""

from __future__ import annotations

from router.auth.authenticate import Authenticator
from router.auth.principal import Principal
from router.auth.refusals import Why
from router.errors import CallerError, permission_denied
from router.model import Call
from router.transport.http.exchange import Exchange


class Gate:
    """Refuses callers who are nobody, and tells handlers who the others are."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def refuse_origin(self, call: Call, origin: str) -> CallerError:
        """Keeps account of a web page that may not call; the error is for it."""
        self._authenticator.refusals.note(Why.ORIGIN, origin, call.request_id)
        return permission_denied("web pages from this origin may not call")

    async def admit(self, exchange: Exchange) -> None:
        """Raises CallerError UNAUTHENTICATED and RouterError IDENTITY_UNKNOWN."""
        exchange.principal = await self.identify(exchange.call)

    async def identify(self, call: Call) -> Principal:
        """Who calls. Raises CallerError UNAUTHENTICATED and RouterError IDENTITY_UNKNOWN."""
        return await self._authenticator.identify(call.credentials.headers, call.credentials.peer, call.request_id)

"""What a WebSocket's handshake says: who calls, from which web page, and which subprotocols are offered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.types import Scope

from router.errors import permission_denied
from router.model import Call, Credentials
from router.transport.requests import describe_call

PROTOCOL = "tidegate.v1"
_BEARER = "tidegate.bearer."
"""Before a credential that is offered as a subprotocol: browsers cannot set headers."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """One handshake; `protocol` is the subprotocol to accept, None if none of ours is offered."""

    call: Call
    protocol: str | None
    origin: str
    host: str

    def check_origin(self, allowed: Sequence[str]) -> None:
        """Web pages of other origins than this server's own must be allowed. Raises CallerError PERMISSION_DENIED."""
        if self.origin and self.origin not in allowed and urlsplit(self.origin).netloc != self.host:
            raise permission_denied("web pages from this origin may not call")


def read_handshake(scope: Scope) -> Handshake:
    """A WebSocket's scope as a handshake."""
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    values = dict(headers)
    offered = [it for it in scope["subprotocols"] if it.startswith(_BEARER)]
    headers += [("authorization", f"Bearer {it.removeprefix(_BEARER)}") for it in offered]
    call = describe_call(headers, Credentials(headers, scope["state"]["connection"].peer))
    protocol = PROTOCOL if PROTOCOL in scope["subprotocols"] else None
    return Handshake(call, protocol, values.get("origin", ""), values.get("host", ""))

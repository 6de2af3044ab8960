"""What a WebSocket's handshake says: who calls, from which web page, and which subprotocols are offered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.types import Scope

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

    def is_allowed(self, origins: Sequence[str]) -> bool:
        """Whether the web page, if it is one, is of this server's own origin or of one of these."""
        return not self.origin or self.origin in origins or urlsplit(self.origin).netloc == self.host


def read_handshake(scope: Scope) -> Handshake:
    """A WebSocket's scope as a handshake."""
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    values = dict(headers)
    offered = [it for it in scope["subprotocols"] if it.startswith(_BEARER)]
    headers += [("authorization", f"Bearer {it.removeprefix(_BEARER)}") for it in offered]
    call = describe_call(headers, Credentials(headers, scope["state"]["connection"].peer))
    protocol = PROTOCOL if PROTOCOL in scope["subprotocols"] else None
    return Handshake(call, protocol, values.get("origin", ""), values.get("host", ""))

"""A WebSocket's handshake: credentials among the subprotocols, and pages of other origins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from router.transport.http.handshake import read_handshake


def scope(*subprotocols: str, **headers: str) -> dict[str, Any]:
    given = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {"headers": given, "subprotocols": list(subprotocols), "state": {"connection": SimpleNamespace(peer={})}}


def test_a_credential_may_be_offered_as_a_subprotocol() -> None:
    """It counts as an authorization header, besides one that is there; only our protocol is accepted."""
    handshake = read_handshake(scope("tidegate.v1", "tidegate.bearer.tg_a_b", authorization="Bearer x"))
    given = [value for name, value in handshake.call.credentials.headers if name == "authorization"]
    assert given == ["Bearer x", "Bearer tg_a_b"]
    assert handshake.protocol == "tidegate.v1"
    assert read_handshake(scope("other")).protocol is None


@pytest.mark.parametrize(
    ("origin", "allowed", "fits"),
    [
        ("", (), True),
        ("http://router:8502", (), True),
        ("https://router:8502", (), True),
        ("http://router", (), False),
        ("https://evil.example", (), False),
        ("null", (), False),
        ("https://console.example", ("https://console.example",), True),
        ("https://console.example.evil.example", ("https://console.example",), False),
    ],
)
def test_pages_of_other_origins(origin: str, allowed: tuple[str, ...], fits: bool) -> None:
    """Callers that are no web page have no origin; a page has that of the router or a listed one."""
    handshake = read_handshake(scope(host="router:8502", **({"origin": origin} if origin else {})))
    assert handshake.is_allowed(allowed) == fits

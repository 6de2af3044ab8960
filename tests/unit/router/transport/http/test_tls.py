"""What a TLS connection proves of the other side, in gRPC's words, so that one check serves both doors."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from router.transport.http.tls import peer_of


class FakeTransport:
    def __init__(self, certificate: dict[str, Any] | None, *, tls: bool = True) -> None:
        self._info = {"ssl_object": object() if tls else None, "peercert": certificate}

    def get_extra_info(self, name: str) -> Any:
        return self._info[name]


def peer(certificate: dict[str, Any] | None, *, tls: bool = True) -> dict[str, list[bytes]]:
    return peer_of(cast(asyncio.Transport, FakeTransport(certificate, tls=tls)))


def test_names_of_a_certificate() -> None:
    """DNS names and URIs are told; a SPIFFE id is one too; other kinds of names and the common name are not."""
    names = (("DNS", "billing.example"), ("URI", "spiffe://corp/billing"), ("URI", "https://billing"), ("IP Address", "10.0.0.1"))
    assert peer({"subject": ((("commonName", "x"),),), "subjectAltName": names}) == {
        "transport_security_type": [b"ssl"],
        "peer_dns": [b"billing.example"],
        "peer_uri": [b"spiffe://corp/billing", b"https://billing"],
        "peer_spiffe_id": [b"spiffe://corp/billing"],
    }


def test_without_a_certificate() -> None:
    """TLS alone proves nothing of the other side, and a plain connection less."""
    assert peer(None) == peer({}) == {"transport_security_type": [b"ssl"]}
    assert peer(None, tls=False) == {}

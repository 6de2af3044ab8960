"""Encryption of the HTTP port: the same certificate as on the gRPC port, renewed without a restart, and who the other side proved to be."""

from __future__ import annotations

import asyncio
import logging
import ssl

from router.auth_config import Tls
from router.config import ConfigInvalid

log = logging.getLogger("tidegate.transport")

Peer = dict[str, list[bytes]]
"""As gRPC's `auth_context()` has it."""


class ServerTls:
    """A context for new connections that follows the files; call `refresh` from time to time."""

    def __init__(self, tls: Tls) -> None:
        """Raises ConfigInvalid when the files cannot be used."""
        self._tls = tls
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self._seen = self._look()
            self.context.load_cert_chain(tls.certificate, tls.key)
            if tls.client_ca:
                self.context.load_verify_locations(tls.client_ca)
                self.context.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:  # SSLError is one
            raise ConfigInvalid(f"tls: {error.filename or tls.certificate}: {error.strerror or 'cannot be used'}") from error

    def refresh(self) -> None:
        """Reads a certificate that has changed; one that cannot be read leaves the old one in force."""
        try:
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self.context.load_cert_chain(self._tls.certificate, self._tls.key)
        except OSError as error:
            log.warning("the new certificate cannot be read; the old one stays: %s", error.strerror)

    def _look(self) -> list[int]:
        return [path.stat().st_mtime_ns for path in (self._tls.certificate, self._tls.key)]


def peer_of(transport: asyncio.Transport) -> Peer:
    """What the other side of a connection has proved by its certificate; empty without TLS."""
    if transport.get_extra_info("ssl_object") is None:
        return {}
    peer: Peer = {"transport_security_type": [b"ssl"]}
    for kind, name in (transport.get_extra_info("peercert") or {}).get("subjectAltName", ()):
        for known in _PROPERTIES.get(kind, ()):
            if known != "peer_spiffe_id" or name.startswith("spiffe://"):
                peer.setdefault(known, []).append(name.encode())
    return peer


_PROPERTIES = {"DNS": ("peer_dns",), "URI": ("peer_uri", "peer_spiffe_id")}

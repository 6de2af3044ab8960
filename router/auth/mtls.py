"""Client certificates. TLS has proved that the peer holds one that our authority signed; here its names become a service's identity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from router.auth.principal import Principal

Peer = Mapping[str, Iterable[bytes]]
"""What gRPC's `auth_context()` says of the other side; empty without TLS."""

NAME_PROPERTIES = ("peer_spiffe_id", "peer_uri", "peer_dns")


class ServiceCertificates:
    """Services by the name in their certificate: a SPIFFE id, another URI, or a DNS name among its subject alternative names.

    The common name is not read: authorities do not verify it. Names are compared whole, without wildcards.
    """

    def __init__(self, services: Mapping[str, Principal]) -> None:
        self._services = {name.encode(): principal for name, principal in services.items()}

    def identify(self, peer: Peer) -> Principal | None:
        """The service that a peer is; None when it is none of ours, or more than one."""
        if list(peer.get("transport_security_type", ())) != [b"ssl"]:
            return None
        names = {name for kind in NAME_PROPERTIES for name in peer.get(kind, ())}
        found = [self._services[name] for name in sorted(names) if name in self._services]
        return found[0] if len(set(found)) == 1 else None

"""Encryption of the gRPC port. Certificates are read again when their files change, so that they are renewed without a restart."""

from __future__ import annotations

import logging
from pathlib import Path

import grpc

from router.auth_config import Tls
from router.config import ConfigInvalid

log = logging.getLogger("tidegate.transport")


def server_credentials(tls: Tls) -> grpc.ServerCredentials:
    """Credentials that follow the files. Raises ConfigInvalid when they cannot be read."""
    files = _Files(tls)
    first = files.read()
    return grpc.dynamic_ssl_server_credentials(first, files.read_changed, tls.client_ca is not None)  # type: ignore[arg-type]


class _Files:
    def __init__(self, tls: Tls) -> None:
        self._paths = [path for path in (tls.key, tls.certificate, tls.client_ca) if path]
        self._seen: list[int] = []

    def read(self) -> grpc.ServerCertificateConfiguration:
        try:
            self._seen = self._look()
            key, certificate, *authority = [path.read_bytes() for path in self._paths]
        except OSError as error:
            raise ConfigInvalid(f"tls: {error.filename}: {error.strerror}") from error
        return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=authority[0] if authority else None)

    def read_changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Asked with each handshake, on a thread of gRPC; None keeps what is in force."""
        try:
            return None if self._look() == self._seen else self.read()
        except (OSError, ConfigInvalid) as error:
            log.warning("the new certificate cannot be read; the old one stays: %s", error)
            return None

    def _look(self) -> list[int]:
        return [Path(path).stat().st_mtime_ns for path in self._paths]

"""How this router reaches workers, and by what they know it: encryption, and a credential in each request.

A lane's credential is HMAC-SHA256 of its name under a secret that routers and workers share, so that the secret is never sent;
server/credential.py checks it. The secret's file has one on each line: routers sign with the first, workers take all. So it is changed
without a pause: the new one is added behind the old one everywhere, then put first, and then the old one is taken away.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from pathlib import Path

import grpc

from router.config import ConfigInvalid
from router.model_config import NEEDS_TLS, WorkerLink
from router.upstream.link import LinkBroken

_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a new connection must not inherit the old one's back-off
    ("grpc.enable_retries", 0),  # the router decides what is tried again
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)

SHORTEST_SECRET = 32

log = logging.getLogger("tidegate.worker")


class Access:
    """Opens connections to workers and signs what is sent on them. Files are read again when they change."""

    def __init__(self, settings: WorkerLink) -> None:
        """Raises ConfigInvalid when a file cannot be used."""
        self._settings = settings
        self._seen = 0
        self._secret = b""
        try:
            self._follow()
            self._read_credentials()
        except (OSError, ValueError) as error:
            raise ConfigInvalid(f"worker_link: {error}") from error

    def connect(self, address: str) -> grpc.aio.Channel:
        """A channel to the worker at host:port. Raises LinkBroken when none may be opened."""
        try:
            credentials = self._read_credentials()
        except OSError as error:
            raise LinkBroken(f"worker_link: {error}") from error
        if credentials:
            return grpc.aio.secure_channel(address, credentials, options=(*_CHANNEL_OPTIONS, *self._name_server()))
        if not self._settings.is_plain(address):
            raise LinkBroken(NEEDS_TLS)
        return grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)

    def sign(self, lane: str) -> str:
        """What shows that this router may use the lane of that name; empty without a credential."""
        try:
            self._follow()
        except (OSError, ValueError) as error:
            log.warning("worker_link.credential: the old one stays: %s", error)
        return hmac.digest(self._secret, lane.encode(), hashlib.sha256).hex() if self._secret else ""

    def _follow(self) -> None:
        path = self._settings.credential
        if path is None:
            return
        changed = path.stat().st_mtime_ns
        if changed != self._seen:
            self._secret, self._seen = read_secret(path), changed

    def _read_credentials(self) -> grpc.ChannelCredentials | None:
        paths = (self._settings.ca, self._settings.key, self._settings.certificate)
        ca, key, certificate = (path.read_bytes() if path else None for path in paths)
        return grpc.ssl_channel_credentials(ca, key, certificate) if ca else None

    def _name_server(self) -> tuple[tuple[str, str], ...]:
        name = self._settings.server_name
        return (("grpc.ssl_target_name_override", name),) if name else ()


PLAIN = Access(WorkerLink())
"""To workers on this machine, with nothing to show."""


def read_secret(path: Path) -> bytes:
    """The secret that a file begins with. Raises OSError, and ValueError for one that can be guessed."""
    secret = path.read_bytes().split(b"\n", 1)[0].strip()
    if len(secret) < SHORTEST_SECRET:
        raise ValueError(f"{path}: its first line must have at least {SHORTEST_SECRET} bytes, as `openssl rand -base64 48` makes them")
    return secret

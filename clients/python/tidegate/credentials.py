"""What a client shows of itself: an API key or token, and TLS, with a certificate of its own or without."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

KEY_VARIABLE = "TIDEGATE_KEY"

_HEADER_VALUE = re.compile(r"[!-~]+", re.ASCII)

Token = str | Callable[[], str]
"""A bearer token, or a function that gives one that is valid now; it is called for each stream and must not wait."""


class PlaintextRefused(ValueError):
    """A key would travel unencrypted to another machine."""


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS by PEM files: the authorities that may sign the router's certificate (the system's when left out), and a certificate of our own.

    `server_name` is the name that the router's certificate must have, where that is not the target's.
    """

    ca: Path | str | None = None
    certificate: Path | str | None = None
    private_key: Path | str | None = None
    server_name: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files. Raises OSError."""
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.private_key), _read(self.certificate))


@dataclass(frozen=True, slots=True)
class Credentials:
    """How a client is known to a router."""

    token: Token = field(default="", repr=False)
    tls: Tls | None = None

    def headers(self) -> dict[str, str]:
        """The headers that say who calls."""
        token = self.token() if callable(self.token) else self.token
        return {"authorization": f"Bearer {token}"} if token else {}

    def open_channel(self, target: str, options: Sequence[tuple[str, Any]]) -> grpc.aio.Channel:
        """A channel that is encrypted as they say. Nothing is reached yet. Raises OSError for PEM files that cannot be read."""
        if self.tls is None:
            return grpc.aio.insecure_channel(target, options=options)
        name = (("grpc.ssl_target_name_override", self.tls.server_name),) if self.tls.server_name else ()
        return grpc.aio.secure_channel(target, self.tls.credentials(), options=(*options, *name))


def choose_credentials(
    target: str,
    *,
    key: str | None,
    token: Token | None,
    tls: Tls | bool | None,
    environment: Mapping[str, str],
    allow_plaintext: bool = False,
) -> Credentials:
    """The key is taken from the environment where neither it nor a token is given.

    Raises ValueError for a text that is no key, and PlaintextRefused for a secret without TLS, unless the target is this machine or
    `allow_plaintext` is set.
    """
    if key is not None and token is not None:
        raise ValueError("give a key or a token, not both")
    secret = next(given for given in (token, key, environment.get(KEY_VARIABLE, "").strip()) if given is not None)
    if isinstance(secret, str) and secret and not _HEADER_VALUE.fullmatch(secret):
        raise ValueError("this is not a key: it has characters that no header can hold")
    chosen = Tls() if tls is True else tls or None
    if secret and chosen is None and not allow_plaintext and not is_local(target):
        raise PlaintextRefused(f"a key would go to {target} unencrypted; give tls=True, or allow_plaintext=True if the network is safe")
    return Credentials(secret, chosen)


def is_local(target: str) -> bool:
    """Whether a gRPC target is certainly on this machine: a Unix socket, `localhost` or a loopback address."""
    scheme, colon, rest = target.partition(":")
    if scheme in ("unix", "unix-abstract"):
        return True
    address = rest.rpartition("/")[2] if scheme in ("dns", "ipv4", "ipv6") and colon else target
    return all(_is_loopback(one) for one in address.split(","))


def _is_loopback(address: str) -> bool:
    host = address[1:].partition("]")[0] if address.startswith("[") else address.partition(":")[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(path: Path | str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()

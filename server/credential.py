"""By what a worker knows its routers: a credential in each request, made with a secret that they share.

router/upstream/access.py makes it, and says how the secret is changed.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from pathlib import Path

log = logging.getLogger("tidegate.worker")

SHORTEST_SECRET = 32


class Credential:
    """Checks requests. The secret's file has one on each line, all of which hold; it is read again when it changes."""

    def __init__(self, path: Path | None) -> None:
        """None: everybody is let in. Raises OSError, and ValueError for a secret that can be guessed."""
        self._path = path
        self._seen = 0
        self._secrets: list[bytes] = []
        self._follow()

    def require(self, lane: str, given: str) -> None:
        """Raises ValueError unless the credential is for the lane of that name, which is empty for a request without one."""
        if self._path and not self._is_right(lane.encode(), given.encode("utf-8", "replace")):
            raise ValueError("lane: the credential does not hold")  # about the lane, so that a router does not blame its caller

    def _is_right(self, lane: bytes, given: bytes) -> bool:
        try:
            self._follow()
        except (OSError, ValueError) as error:
            log.warning("lane_credential: the old one stays: %s", error)
        return any(hmac.compare_digest(hmac.digest(secret, lane, hashlib.sha256).hex().encode(), given) for secret in self._secrets)

    def _follow(self) -> None:
        if self._path is None:
            return
        changed = self._path.stat().st_mtime_ns
        if changed != self._seen:
            self._secrets, self._seen = read_secrets(self._path), changed


def read_secrets(path: Path) -> list[bytes]:
    """The secrets of a file, one on each line. Raises OSError, and ValueError for one that can be guessed."""
    secrets = path.read_bytes().split()
    if not secrets or min(map(len, secrets)) < SHORTEST_SECRET:
        raise ValueError(f"{path}: each line must have at least {SHORTEST_SECRET} bytes, as `openssl rand -base64 48` makes them")
    return secrets

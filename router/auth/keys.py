"""API keys: `tg_<prefix>_<secret>`, shown once.

The prefix is public and finds the key. What is stored is HMAC-SHA256 of the whole key under a pepper that the database never sees; the
secret has 256 random bits, so a slow hash would protect nothing and cost each call milliseconds. Whatever text arrives, one digest is
computed and compared in constant time, with a digest that nothing has when the prefix is unknown.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PEPPER_VARIABLE = "TIDEGATE_KEY_PEPPER"

_KEY = re.compile(r"tg_([a-z2-7]{12})_[A-Za-z0-9_-]{43}", re.ASCII)
_NO_DIGEST = bytes(32)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made. `text` is for its owner, once; the rest is for the store."""

    text: str
    prefix: str
    digest: bytes

    def __repr__(self) -> str:
        return f"NewKey({self.prefix})"


class KeyHash:
    """Digests of keys under one pepper."""

    def __init__(self, pepper: bytes) -> None:
        if len(pepper) < 32:
            raise ValueError("the pepper needs at least 32 bytes")
        self._pepper = pepper

    def make_key(self) -> NewKey:
        """A new random key."""
        prefix = base64.b32encode(secrets.token_bytes(10)).decode().lower()[:12]
        text = f"tg_{prefix}_{secrets.token_urlsafe(32)}"
        return NewKey(text, prefix, self.digest(text))

    def digest(self, text: str) -> bytes:
        """32 bytes. Any text has a digest, also one that is no key."""
        return hmac.digest(self._pepper, text.encode("utf-8", "surrogatepass"), hashlib.sha256)

    def matches(self, text: str, digest: bytes | None) -> bool:
        """Whether a text has this digest. The work is the same when there is none to compare with."""
        same = hmac.compare_digest(self.digest(text), _NO_DIGEST if digest is None else digest)
        return same and digest is not None


def read_prefix(text: str) -> str | None:
    """The prefix of a text that has a key's form."""
    match = _KEY.fullmatch(text)
    return match[1] if match else None


def load_pepper(environment: Mapping[str, str], file: Path) -> bytes:
    """The pepper from TIDEGATE_KEY_PEPPER, or else from a file, which is made when missing. Several routers must share one."""
    if value := environment.get(PEPPER_VARIABLE):
        return value.encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(secrets.token_urlsafe(48).encode())
        os.link(draft, file)  # all or nothing: of two routers that start at once, the second reads what the first wrote
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)
    return file.read_bytes().strip()

"""API keys: `tg_<prefix>_<secret>`, shown once.

The prefix is public and finds the key. What is stored is HMAC-SHA256 of the whole key under a pepper that the database never sees; the
secret has 256 random bits, so a slow hash would protect nothing and cost each call milliseconds. Whatever text arrives, as many digests are
computed and compared in constant time, with one that nothing has when the prefix is unknown.

The pepper can be changed while routers run: for a time they know the one of before too. A key that is used then gets a second digest, under
the new pepper; a new key has both from the start. The first digest stays, so that routers which do not know the new pepper yet are not
disturbed, and goes when the key is used at a router that no longer knows the pepper of before.
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

from router.store.rows import KeyDigests, KeyRow

PEPPER_VARIABLE = "TIDEGATE_KEY_PEPPER"
PREVIOUS_VARIABLE = "TIDEGATE_KEY_PEPPER_PREVIOUS"

_KEY = re.compile(r"tg_([a-z2-7]{12})_[A-Za-z0-9_-]{43}", re.ASCII)
_NO_DIGEST = bytes(32)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made. `text` is for its owner, once; the rest is for the store."""

    text: str
    prefix: str
    digests: KeyDigests

    def __repr__(self) -> str:
        return f"NewKey({self.prefix})"


class KeyHash:
    """Digests of keys under a pepper, and for recognising them also under those of before, the latest first."""

    def __init__(self, pepper: bytes, *previous: bytes) -> None:
        self._peppers = tuple(dict.fromkeys((pepper, *previous)))
        if any(len(it) < 32 for it in self._peppers):
            raise ValueError("a pepper needs at least 32 bytes")
        self._salt_key = _digest(pepper, "cache salt")
        self._signing_keys = tuple(_digest(it, "signatures") for it in self._peppers)
        self.names = tuple(map(name_pepper, self._peppers))
        """The peppers' public names."""
        self.pepper = self.names[0]

    def make_key(self) -> NewKey:
        """A new random key."""
        prefix = base64.b32encode(secrets.token_bytes(10)).decode().lower()[:12]
        text = f"tg_{prefix}_{secrets.token_urlsafe(32)}"
        return NewKey(text, prefix, self.digests(text))

    def digests(self, text: str) -> KeyDigests:
        """What is to be stored of a text. Any text has digests, also one that is no key."""
        digest = _digest(self._peppers[0], text)
        if len(self._peppers) == 1:
            return KeyDigests(digest, self.pepper)
        before = self._peppers[1]
        return KeyDigests(_digest(before, text), name_pepper(before), digest, self.pepper)

    def salt(self, tenant: str) -> str:
        """Stands for a tenant where nobody is to learn who it is: the same in all routers with this pepper, and no key's digest."""
        return _digest(self._salt_key, tenant).hex()

    def sign(self, text: str) -> str:
        """Shows whoever has the pepper that a text was written by one who has it too."""
        return _digest(self._signing_keys[0], text).hex()

    def is_signed(self, text: str, signature: str) -> bool:
        """Whether a text was signed under one of the peppers."""
        return any(hmac.compare_digest(_digest(key, text).hex().encode(), signature.encode()) for key in self._signing_keys)

    def matches(self, text: str, key: KeyRow | None) -> bool:
        """Whether a text is this key. The work is the same whatever the text and the key are, and when there is no key."""
        stored = (None, None) if key is None else (key.digest, key.next_digest)
        digests = [_digest(pepper, text) for pepper in self._peppers]
        return sum(_is_same(one, other) for one in digests for other in stored) > 0  # all are compared, whatever the first says

    def knows_pepper(self, key: KeyRow) -> bool:
        """Whether one of the peppers is one that a key is stored under, as far as is known."""
        return key.pepper is None or not {key.pepper, key.next_pepper}.isdisjoint(self.names)

    def is_old(self, key: KeyRow) -> bool:
        """Whether a key will no longer be recognised once the peppers of before are forgotten, as far as is known."""
        return self.pepper not in (key.pepper, key.next_pepper)

    def is_renewable(self, key: KeyRow) -> bool:
        """Whether a key should be stored as `digests` says now that it is used."""
        return self.is_old(key) or (len(self._peppers) == 1 and key.pepper != self.pepper)


def name_pepper(pepper: bytes) -> str:
    """A name that tells peppers apart and nothing about them."""
    return _digest(pepper, "the name of a pepper").hex()[:16]


def _digest(pepper: bytes, text: str) -> bytes:
    return hmac.digest(pepper, text.encode("utf-8", "surrogatepass"), hashlib.sha256)


def _is_same(digest: bytes, stored: bytes | None) -> bool:
    same = hmac.compare_digest(digest, _NO_DIGEST if stored is None else stored)
    return same and stored is not None


def read_prefix(text: str) -> str | None:
    """The prefix of a text that has a key's form."""
    match = _KEY.fullmatch(text)
    return match[1] if match else None


def load_peppers(environment: Mapping[str, str], file: Path) -> list[bytes]:
    """The pepper, and those of before from TIDEGATE_KEY_PEPPER_PREVIOUS and the variables whose names begin so, in the order of names."""
    previous = (environment[name] for name in sorted(environment) if name.startswith(PREVIOUS_VARIABLE))
    return [load_pepper(environment, file), *(value.encode() for value in previous if value)]


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

"""An issuer's public keys, fetched when needed and never more often than a cooldown allows.

Who sends tokens with made-up key ids must not make us flood the issuer's key server, wait for it, or lose the keys we have: a known key is
answered at once from memory, an unknown one causes at most one fetch per cooldown whatever its outcome, and a fetch that fails, takes too
long or brings no usable key changes nothing. Old keys are renewed in the background; those that could not be renewed for `keep_s` are no
longer trusted.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import jwt

from router.auth.fetch import Fetch
from router.errors import identity_unknown

_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_MAX_KEYS = 100

log = logging.getLogger("tidegate.auth")


class KeySet:
    """The keys of one issuer by id, all for one algorithm."""

    def __init__(
        self,
        url: str,
        algorithm: str,
        fetch: Fetch,
        clock: Callable[[], float],
        *,
        deadline_s: float = 10.0,
        cooldown_s: float = 30.0,
        renew_s: float = 3600.0,
        keep_s: float = 86_400.0,
    ) -> None:
        """`fetch` brings the key set that is found at, or by, `url`."""
        self._url = url
        self._algorithm = algorithm
        self._fetch = fetch
        self._clock = clock
        self._deadline_s = deadline_s
        self._cooldown_s, self._renew_s, self._keep_s = cooldown_s, renew_s, keep_s
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._fetched_at = self._tried_at = float("-inf")
        self._renewal: asyncio.Task[None] | None = None

    async def find(self, key_id: str) -> jwt.PyJWK | None:
        """The key with an id. Waits for the key server only when the id is unknown and the cooldown is over.

        Raises RouterError IDENTITY_UNKNOWN while there are no keys at all.
        """
        age = self._clock() - self._fetched_at
        if age > self._renew_s or key_id not in self._keys:
            self.renew()
        if self._renewal is not None and (age > self._keep_s or key_id not in self._keys):
            await asyncio.shield(self._renewal)
        if self._clock() - self._fetched_at > self._keep_s:
            raise identity_unknown()
        return self._keys.get(key_id)

    async def close(self) -> None:
        """Ends a fetch that is under way."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait({self._renewal})

    def renew(self) -> None:
        """Begins to fetch the keys anew, unless it is too soon after the last time."""
        if self._renewal is None and self._clock() - self._tried_at >= self._cooldown_s:
            self._tried_at = self._clock()
            self._renewal = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                keys = read_keys(await self._fetch(self._url), self._algorithm)
        except Exception as error:  # whatever a key server sends, the keys we have stay
            log.warning("no keys from %s: %s %s", self._url, type(error).__name__, ascii(str(error))[:200])
        else:
            self._keys, self._fetched_at = keys, self._clock()
        finally:
            self._renewal = None


def read_keys(document: bytes, algorithm: str) -> dict[str, jwt.PyJWK]:
    """The usable keys of a JWKS: signature keys with an id whose kind fits the algorithm. Raises ValueError when there is none."""
    entries = json.loads(document)["keys"]
    keys = {}
    for entry in entries[:_MAX_KEYS]:
        if isinstance(entry, dict) and _fits(entry, algorithm):
            with suppress(jwt.PyJWTError):  # one key that cannot be read does not spoil the others
                keys[entry["kid"]] = jwt.PyJWK(entry, algorithm)
    if not keys:
        raise ValueError(f"the key set has no key for {algorithm}")
    return keys


def _fits(entry: dict[str, Any], algorithm: str) -> bool:
    return (
        isinstance(entry.get("kid"), str)
        and entry.get("kty") == _KINDS[algorithm[:2]]
        and entry.get("alg", algorithm) == algorithm
        and entry.get("use", "sig") == "sig"
    )

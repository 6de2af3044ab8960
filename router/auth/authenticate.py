"""The one check that every edge makes: headers and peer in, Principal out.

A credential in `authorization` decides alone, also when it is wrong: a bad key is never forgiven because of a good certificate. Without one
the client certificate counts. Every fault is answered with the same words; only "cannot be checked now" differs.

Where callers without credentials are let in, a text that has neither the form of our keys nor that of tokens is none: OpenAI's clients
cannot be made without a key, so they send some text. Nobody gains by it, for anybody may call there with no header at all. What looks like
a key or a token of ours is still refused when it does not hold, so that a typo or a revoked key is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from router.auth.directory import Directory
from router.auth.keys import KeyHash, read_prefix
from router.auth.mtls import Peer, ServiceCertificates
from router.auth.principal import Principal, read_roles
from router.auth.tokens import TokenVerifier
from router.errors import unauthenticated
from router.store.rows import KeyRow

Headers = Iterable[tuple[str, str | bytes]]
"""Names and values as they came: pairs, not a mapping, which would hide that a header was sent twice."""

_SCHEME = "bearer "
_MAX_CHARS = 16 * 1024


class Authenticator:
    """Identifies callers. `anonymous` is who callers without any credential are; None refuses them."""

    def __init__(
        self,
        keys: KeyHash,
        directory: Directory,
        tokens: TokenVerifier,
        services: ServiceCertificates,
        *,
        now: Callable[[], float],
        anonymous: Principal | None = None,
    ) -> None:
        self._keys = keys
        self._directory = directory
        self._tokens = tokens
        self._services = services
        self._now = now
        self._anonymous = anonymous

    @property
    def is_able(self) -> bool:
        """Whether anybody can be let in now."""
        return self._anonymous is not None or self._directory.is_known

    async def identify(self, headers: Headers, peer: Peer) -> Principal:
        """Who is calling. Raises CallerError UNAUTHENTICATED, and RouterError IDENTITY_UNKNOWN while credentials cannot be checked."""
        given = [value for name, value in headers if name.lower() == "authorization"]
        if not given:
            return self._identify_peer(peer)
        credential = read_bearer(given)
        if self._anonymous is not None and not _is_of_our_form(credential):
            return self._anonymous
        principal = await (self._check_key(credential) if credential.startswith("tg_") else self._tokens.verify(credential))
        return self._admit(principal)

    def _identify_peer(self, peer: Peer) -> Principal:
        principal = self._services.identify(peer)
        if principal is not None:
            return self._admit(principal)
        if self._anonymous is None:
            raise unauthenticated()
        return self._anonymous

    async def _check_key(self, text: str) -> Principal:
        prefix = read_prefix(text)
        key = None if prefix is None else await self._directory.find_key(prefix)
        if not self._keys.matches(text, key) or key is None or not self._is_valid(key):
            raise unauthenticated()
        if self._keys.is_renewable(key):
            self._directory.renew(key.prefix, self._keys.digests(text))
        models = None if key.models is None else frozenset(key.models)
        return Principal(key.tenant, key.user, read_roles(key.roles), key.prefix, models)

    def _is_valid(self, key: KeyRow) -> bool:
        now = datetime.fromtimestamp(self._now(), UTC)
        return key.revoked_at is None and (key.expires_at is None or now < key.expires_at)

    def _admit(self, principal: Principal) -> Principal:
        if self._directory.is_disabled(principal.tenant):
            raise unauthenticated()
        return principal


def _is_of_our_form(credential: str) -> bool:
    """Whether a text is meant as one of our keys, or as a signed token: three parts with dots between them."""
    return credential.lower().startswith("tg_") or credential.count(".") == 2


def read_bearer(values: list[str | bytes]) -> str:
    """The credential of the only `authorization` header. Raises CallerError UNAUTHENTICATED when it is not one of a sane form."""
    if len(values) != 1 or not isinstance(values[0], str) or len(values[0]) > _MAX_CHARS or not values[0].isascii():
        raise unauthenticated()
    header = values[0].strip()  # gRPC, unlike HTTP, leaves what a client such as perf_analyzer writes behind the colon
    credential = header[len(_SCHEME) :]
    if header[: len(_SCHEME)].lower() != _SCHEME or not credential or any(mark.isspace() for mark in credential):
        raise unauthenticated()
    return credential

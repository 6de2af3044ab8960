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
from router.auth.mtls import NAME_PROPERTIES, Peer, ServiceCertificates
from router.auth.principal import Principal, read_roles
from router.auth.refusals import Refusals, Why
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
        refusals: Refusals,
        *,
        now: Callable[[], float],
        anonymous: Principal | None = None,
    ) -> None:
        self._keys = keys
        self._directory = directory
        self._tokens = tokens
        self._services = services
        self.refusals = refusals
        self._now = now
        self._anonymous = anonymous

    @property
    def is_able(self) -> bool:
        """Whether anybody can be let in now."""
        return self._anonymous is not None or self._directory.is_known

    async def identify(self, headers: Headers, peer: Peer, request_id: str = "") -> Principal:
        """Who is calling. Raises CallerError UNAUTHENTICATED, and RouterError IDENTITY_UNKNOWN while credentials cannot be checked."""
        with self.refusals.noted(request_id):
            return await self._identify(headers, peer)

    async def _identify(self, headers: Headers, peer: Peer) -> Principal:
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
            raise unauthenticated(*describe_peer(peer))
        return self._anonymous

    async def _check_key(self, text: str) -> Principal:
        prefix = read_prefix(text)
        key = None if prefix is None else await self._directory.find_key(prefix)
        matches = self._keys.matches(text, key)
        if prefix is None or key is None:
            raise unauthenticated(Why.MALFORMED if prefix is None else Why.UNKNOWN_KEY, f"key {prefix or ''}")
        if not matches:
            raise unauthenticated(Why.WRONG_KEY if self._keys.knows_pepper(key) else Why.OTHER_PEPPER, f"key {prefix}")
        self._check_term(key)
        if self._keys.is_renewable(key):
            self._directory.renew(key.prefix, self._keys.digests(text))
        models = None if key.models is None else frozenset(key.models)
        return Principal(key.tenant, key.user, read_roles(key.roles), key.prefix, models)

    def _check_term(self, key: KeyRow) -> None:
        if key.revoked_at is not None:
            raise unauthenticated(Why.REVOKED, f"key {key.prefix}, since {key.revoked_at:%Y-%m-%d %H:%M:%S}")
        if key.expires_at is not None and datetime.fromtimestamp(self._now(), UTC) >= key.expires_at:
            raise unauthenticated(Why.EXPIRED, f"key {key.prefix}, since {key.expires_at:%Y-%m-%d %H:%M:%S}")

    def _admit(self, principal: Principal) -> Principal:
        if self._directory.is_disabled(principal.tenant):
            raise unauthenticated(Why.TENANT_DISABLED, f"tenant {principal.tenant}")
        return principal


def _is_of_our_form(credential: str) -> bool:
    """Whether a text is meant as one of our keys, or as a signed token: three parts with dots between them."""
    return credential.lower().startswith("tg_") or credential.count(".") == 2


def read_bearer(values: list[str | bytes]) -> str:
    """The credential of the only `authorization` header. Raises CallerError UNAUTHENTICATED when it is not one of a sane form."""
    if len(values) != 1 or not isinstance(values[0], str) or len(values[0]) > _MAX_CHARS or not values[0].isascii():
        raise unauthenticated(Why.MALFORMED, "not one header of ASCII")
    header = values[0].strip()  # gRPC, unlike HTTP, leaves what a client such as perf_analyzer writes behind the colon
    credential = header[len(_SCHEME) :]
    if header[: len(_SCHEME)].lower() != _SCHEME or not credential or any(mark.isspace() for mark in credential):
        raise unauthenticated(Why.MALFORMED, "not a bearer")
    return credential


def describe_peer(peer: Peer) -> tuple[Why, str]:
    """Why a caller without a bearer is nobody."""
    names = [name.decode(errors="replace") for names in map(peer.get, NAME_PROPERTIES) for name in names or ()]
    if not names:
        return Why.MISSING, "neither key, token nor certificate"
    return Why.CERTIFICATE, f"no service of ours is named {', '.join(names)}"

"""Signed tokens (JWT, OIDC): checked against the issuers that are configured, and nothing a token says about itself chooses how.

The token's `iss` only selects an issuer's entry. The entry fixes the one algorithm, which its keys carry too, so a token that names another
(`none`, `HS256` keyed with our public key) is refused before any key is used. Symmetric algorithms cannot be configured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jwt

from router.auth.jwks import KeySet
from router.auth.principal import Principal, Role
from router.auth.refusals import Why
from router.errors import unauthenticated

ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})

_MAX_TOKEN_CHARS = 16 * 1024
_MAX_NAME_CHARS = 256
_REQUIRED = ["exp", "iss", "aud"]


class ClaimsInvalid(ValueError):
    """Claims that hold do not name a tenant and a user that their issuer may name."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """Who may vouch for callers, and for which. Claim names may be paths: `realm_access.roles`."""

    url: str
    """Equal to the tokens' `iss`."""
    audience: str
    algorithm: str
    leeway_s: float = 30.0
    """How far the issuer's clock may be off."""
    user_claim: str = "sub"
    tenant_claim: str = "tenant"
    roles_claim: str = "roles"
    tenants: frozenset[str] | None = None
    """Tenants that this issuer may name; None is all."""
    roles: Mapping[str, Role] = field(default_factory=dict)
    """What the issuer's role names mean here; others mean nothing. Everyone it vouches for is a caller."""

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm: one of {', '.join(sorted(ALGORITHMS))}")


class TokenVerifier:
    """Turns tokens into principals."""

    def __init__(self, issuers: Sequence[tuple[Issuer, KeySet]], now: Callable[[], float]) -> None:
        self._issuers = {issuer.url: (issuer, keys) for issuer, keys in issuers}
        self._now = now

    async def verify(self, token: str) -> Principal:
        """Who a token is for. Raises CallerError UNAUTHENTICATED, the same for every fault, and RouterError while an issuer has no keys."""
        try:
            if len(token) > _MAX_TOKEN_CHARS:
                raise jwt.InvalidTokenError
            unverified = jwt.decode_complete(token, options={"verify_signature": False})
            issuer, key = await self._find_key(unverified["header"], unverified["payload"]["iss"])
            return read_principal(issuer, self._read_claims(token, issuer, key))
        except (jwt.PyJWTError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:  # a token may hold any JSON
            raise unauthenticated(_explain(error), "a token") from None

    async def _find_key(self, header: Mapping[str, Any], url: str) -> tuple[Issuer, jwt.PyJWK]:
        if url not in self._issuers:
            raise unauthenticated(Why.ISSUER, f"a token of {url}")
        issuer, keys = self._issuers[url]
        if header["alg"] != issuer.algorithm:
            raise unauthenticated(Why.ALGORITHM, f"a token signed with {header['alg']}")
        key = await keys.find(header["kid"])
        if key is None:
            raise unauthenticated(Why.UNKNOWN_KID, f"kid {header['kid']} of {url}")
        return issuer, key

    def _read_claims(self, token: str, issuer: Issuer, key: jwt.PyJWK) -> dict[str, Any]:
        # PyJWT reads the system's clock; times are checked here, by the clock passed in.
        options: Any = {"require": _REQUIRED, "verify_exp": False, "verify_nbf": False, "verify_iat": False}
        claims: dict[str, Any] = jwt.decode(
            token, key, algorithms=[issuer.algorithm], audience=issuer.audience, issuer=issuer.url, options=options
        )
        self._check_times(claims, issuer.leeway_s)
        return claims

    def _check_times(self, claims: Mapping[str, Any], leeway_s: float) -> None:
        now, expires_at, begins_at = self._now(), float(claims["exp"]), float(claims.get("nbf", 0))
        if not expires_at > now - leeway_s:
            raise unauthenticated(Why.EXPIRED, f"a token, {now - expires_at:.0f} s ago")
        if not begins_at <= now + leeway_s:
            raise unauthenticated(Why.NOT_YET_VALID, f"a token, for {begins_at - now:.0f} s")


def _explain(error: Exception) -> Why:
    return next((why for kind, why in _REASONS.items() if isinstance(error, kind)), Why.MALFORMED)


_REASONS: Mapping[type[Exception], Why] = {
    jwt.InvalidAudienceError: Why.AUDIENCE,
    jwt.InvalidSignatureError: Why.SIGNATURE,
    jwt.MissingRequiredClaimError: Why.CLAIMS,
    ClaimsInvalid: Why.CLAIMS,
}


def read_principal(issuer: Issuer, claims: Mapping[str, Any]) -> Principal:
    """A principal from claims that hold. Raises ValueError when they do not name a tenant and a user that the issuer may name."""
    tenant, user = (_read_name(claims, claim) for claim in (issuer.tenant_claim, issuer.user_claim))
    if issuer.tenants is not None and tenant not in issuer.tenants:
        raise ClaimsInvalid("not this issuer's tenant")
    given = _read_claim(claims, issuer.roles_claim)
    names = given.split() if isinstance(given, str) else given if isinstance(given, list) else []
    roles = {issuer.roles[name] for name in names if isinstance(name, str) and name in issuer.roles}
    return Principal(tenant, user, frozenset({Role.CALLER, *roles}))


def _read_name(claims: Mapping[str, Any], claim: str) -> str:
    # Names go to logs, metrics and the ledger.
    name = _read_claim(claims, claim)
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= _MAX_NAME_CHARS:
        raise ClaimsInvalid("not a name")
    return name


def _read_claim(claims: Mapping[str, Any], claim: str) -> Any:
    if claim in claims:
        return claims[claim]  # names with dots that are no paths: https://example.com/tenant
    value: Any = claims
    for part in claim.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value

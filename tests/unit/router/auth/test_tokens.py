"""Signed tokens: what a principal is made of, and what is refused."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import jwt
import pytest

from router.auth.principal import Principal, Role
from router.auth.tokens import Issuer, read_principal
from router.errors import CallerError
from tests.unit.router.auth.bench import ISSUER, START, Gate, Signer, build_gate, claims_of


@pytest.fixture(scope="module")
def signer() -> Signer:
    """One key pair for all: making it takes a tenth of a second."""
    return Signer("k1")


async def test_a_token_becomes_a_principal(signer: Signer) -> None:
    """Tenant, user and the roles that mean something here."""
    gate = await build_gate(signer)
    principal = await gate.ask(f"Bearer {signer.sign(roles=['gateway-admin', 'operator', 7])}")
    assert principal == Principal("acme", "ann", frozenset({Role.CALLER, Role.TENANT_ADMIN}))


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other.example"},
        {"iss": ["https://id.example"]},
        {"iss": None},
        {"aud": "other"},
        {"aud": None},
        {"exp": None},
        {"exp": START - 31},
        {"exp": "soon"},
        {"exp": 10**400},
        {"exp": float("nan")},
        {"nbf": START + 31},
        {"tenant": None},
        {"tenant": ""},
        {"tenant": "a\nERROR forged"},
        {"tenant": "a" * 257},
        {"tenant": {"id": "acme"}},
        {"sub": "nul\0"},
    ],
)
async def test_a_token_whose_claims_do_not_hold_is_refused(signer: Signer, claims: dict[str, Any]) -> None:
    """Whatever is wrong, the caller hears the same."""
    gate = await build_gate(signer)
    await refuse(gate, forge(signer, claims))


@pytest.mark.parametrize("claims", [{"exp": START - 29}, {"nbf": START + 29}, {"aud": ["other", "tidegate"]}, {"iat": START + 999}])
async def test_clocks_may_be_off_a_little(signer: Signer, claims: dict[str, Any]) -> None:
    """By the issuer's leeway, in both directions."""
    gate = await build_gate(signer)
    assert (await gate.ask(f"Bearer {signer.sign(**claims)}")).user == "ann"


@pytest.mark.parametrize("token", ["a.b.c", "....", "e30.e30.", "x", "[" * 9000, "W1tb" * 3000 + ".W1tb.x"])
async def test_text_that_is_no_token_is_refused(signer: Signer, token: str) -> None:
    """However it is malformed."""
    await refuse(await build_gate(signer), token)


async def test_deeply_nested_claims_are_refused(signer: Signer) -> None:
    """They must not exhaust the stack."""
    payload = base64.urlsafe_b64encode(b'{"iss":' + b"[" * 8000 + b"]" * 8000 + b"}").rstrip(b"=").decode()
    await refuse(await build_gate(signer), f"eyJhbGciOiJSUzI1NiIsImtpZCI6ImsxIn0.{payload[:15000]}.x")


async def test_an_issuer_speaks_for_its_tenants_only(signer: Signer) -> None:
    """One customer's identity provider cannot vouch for another customer."""
    gate = await build_gate(signer, issuers=[replace(ISSUER, tenants=frozenset({"globex"}))])
    await refuse(gate, signer.sign())
    assert (await gate.ask(f"Bearer {signer.sign(tenant='globex')}")).tenant == "globex"


def test_claims_are_found_by_name_or_by_path() -> None:
    """Keycloak nests roles; others name claims with URLs; scopes come as one text."""
    issuer = replace(ISSUER, tenant_claim="https://x.example/tenant", roles_claim="realm_access.roles")
    claims = claims_of(realm_access={"roles": ["gateway-admin"]}) | {"https://x.example/tenant": "globex"}
    assert read_principal(issuer, claims) == Principal("globex", "ann", frozenset(Role) - {Role.OPERATOR})
    scoped = replace(ISSUER, roles_claim="scope")
    assert Role.TENANT_ADMIN in read_principal(scoped, claims_of(scope="openid gateway-admin")).roles


@pytest.mark.parametrize("algorithm", ["HS256", "none", "rs256", ""])
def test_an_issuer_needs_an_algorithm_with_public_keys(algorithm: str) -> None:
    """A shared secret cannot be configured by mistake."""
    with pytest.raises(ValueError, match="algorithm"):
        Issuer("https://id.example", "tidegate", algorithm)


def forge(signer: Signer, claims: dict[str, Any]) -> str:
    """A token that is well signed; PyJWT would not make some of these by itself."""
    return jwt.PyJWS().encode(json.dumps(claims_of(**claims)).encode(), signer.keys["k1"], "RS256", {"kid": "k1"})


async def refuse(gate: Gate, token: str) -> None:
    with pytest.raises(CallerError) as caught:
        await gate.ask(f"Bearer {token}")
    assert caught.value.reason == "UNAUTHENTICATED"

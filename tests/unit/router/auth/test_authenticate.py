"""The one check of all edges: which credential decides, certificates, and what a principal may do."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

import pytest

from router.auth.authenticate import Authenticator
from router.auth.mtls import ServiceCertificates
from router.auth.principal import Principal, Role
from router.auth.tokens import TokenVerifier
from router.errors import CallerError
from tests.unit.router.auth.bench import KEYS, SERVICES, build_gate, build_refusals

BILLING = {"transport_security_type": [b"ssl"], "peer_spiffe_id": [b"spiffe://acme/billing"], "peer_uri": [b"spiffe://acme/billing"]}
ANN = Principal("acme", "ann", frozenset({Role.CALLER}))


async def test_a_certificate_identifies_a_service() -> None:
    """By its SPIFFE id, without any header."""
    gate = await build_gate()
    assert await gate.authenticator.identify([("user-agent", "x")], BILLING) == SERVICES["spiffe://acme/billing"]


async def test_a_bad_key_is_not_forgiven_for_a_good_certificate() -> None:
    """The credential that was sent decides."""
    gate = await build_gate()
    key = gate.keys.add()
    assert (await gate.authenticator.identify([("Authorization", f"bearer {key.text}")], BILLING)).user == "ann"
    with pytest.raises(CallerError):
        await gate.authenticator.identify([("authorization", "Bearer wrong")], BILLING)


@pytest.mark.parametrize(
    "peer",
    [
        {},
        {**BILLING, "transport_security_type": [b"insecure"]},
        {"peer_spiffe_id": [b"spiffe://acme/billing"]},
        {"transport_security_type": [b"ssl"], "x509_common_name": [b"spiffe://acme/billing"]},
        {"transport_security_type": [b"ssl"], "peer_email": [b"spiffe://acme/billing"]},
        {"transport_security_type": [b"ssl"], "peer_uri": [b"spiffe://acme/billing/x", b"SPIFFE://acme/billing"]},
    ],
)
async def test_other_certificates_identify_nobody(peer: Mapping[str, list[bytes]]) -> None:
    """Names in other places, names that only resemble, and claims without TLS."""
    gate = await build_gate()
    with pytest.raises(CallerError):
        await gate.authenticator.identify([], peer)


def test_a_certificate_of_two_services_is_neither() -> None:
    """Which one would be a guess."""
    services = ServiceCertificates({"a.example": ANN, "b.example": Principal("b", "b", frozenset())})
    assert services.identify({"transport_security_type": [b"ssl"], "peer_dns": [b"a.example", b"b.example"]}) is None
    assert services.identify({"transport_security_type": [b"ssl"], "peer_dns": [b"a.example", b"c.example"]}) == ANN


@pytest.mark.parametrize(("pattern", "good"), [(" Bearer {} ", True), ("\tbearer {}", True), ("Bearer  {}", False), ("Bearer {} x", False)])
async def test_space_around_a_header_counts_for_nothing(pattern: str, good: bool) -> None:
    """HTTP's servers drop it before, gRPC does not; inside the header it is an error."""
    gate = await build_gate()
    key = gate.keys.add()
    with nullcontext() if good else pytest.raises(CallerError):
        await gate.authenticator.identify([("authorization", pattern.format(key.text))], {})


async def test_callers_without_credentials_may_be_let_in() -> None:
    """As the configured principal, and only when they send none at all."""
    gate = await build_gate()
    services, tokens = ServiceCertificates({}), TokenVerifier([], gate.clock)
    authenticator = Authenticator(KEYS, gate.directory, tokens, services, build_refusals(), now=gate.clock, anonymous=ANN)
    assert await authenticator.identify([], {}) == ANN
    with pytest.raises(CallerError):
        await authenticator.identify([("authorization", "")], {})


FOREIGN = ("x", "sk-none", "EMPTY")
OURS = ("tg_short", f"tg_abcdefghijkl_{'x' * 43}", "TG_X", "e30.e30.x", "", "a b")


@pytest.mark.parametrize(("text", "is_let_in"), [*((it, True) for it in FOREIGN), *((it, False) for it in OURS)])
async def test_where_anybody_may_call_a_key_of_another_make_is_none(text: str, is_let_in: bool) -> None:
    """OpenAI's clients must send one; what looks like a key or token of ours must hold, and elsewhere all must."""
    gate = await build_gate()
    services, tokens = ServiceCertificates(SERVICES), TokenVerifier([], gate.clock)
    authenticator = Authenticator(KEYS, gate.directory, tokens, services, build_refusals(), now=gate.clock, anonymous=ANN)
    with nullcontext() if is_let_in else pytest.raises(CallerError):
        assert await authenticator.identify([("authorization", f"Bearer {text}")], BILLING) == ANN
    with pytest.raises(CallerError):
        await gate.ask(f"Bearer {text}")


def test_a_principal_uses_the_models_of_its_key() -> None:
    """None is all, an empty list is none, and only callers run turns."""
    ANN.require_model("any")
    for principal in (Principal("acme", "ann", ANN.roles, models=frozenset()), Principal("acme", "ops", frozenset({Role.OPERATOR}))):
        with pytest.raises(CallerError) as caught:
            principal.require_model("any")
        assert caught.value.reason == "PERMISSION_DENIED"
    Principal("acme", "ann", ANN.roles, models=frozenset({"m"})).require_model("other", "m")


def test_an_administrator_rules_the_own_tenant() -> None:
    """An operator rules all; nobody gives away more than they have."""
    admin, operator = (Principal("acme", "a", frozenset({role})) for role in (Role.TENANT_ADMIN, Role.OPERATOR))
    admin.require_admin("acme")
    admin.require_grant("acme", {Role.TENANT_ADMIN, Role.CALLER}, None)
    operator.require_admin("globex")
    operator.require_grant("globex", set(Role), None)
    operator.require_operator()
    with pytest.raises(CallerError):
        admin.require_admin("globex")
    with pytest.raises(CallerError):
        admin.require_operator()
    with pytest.raises(CallerError):
        admin.require_grant("acme", {Role.OPERATOR}, None)
    with pytest.raises(CallerError):
        ANN.require_admin("acme")


@pytest.mark.parametrize("models", [None, ["a", "b"]])
def test_an_administrator_whose_key_is_restricted_gives_no_more_models(models: list[str] | None) -> None:
    """Else the restriction would be one call away from its end; an operator may do everything."""
    admin, operator = (Principal("acme", "a", frozenset({role}), models=frozenset({"a"})) for role in (Role.TENANT_ADMIN, Role.OPERATOR))
    admin.require_grant("acme", {Role.CALLER}, ["a"])
    operator.require_grant("acme", {Role.CALLER}, models)
    with pytest.raises(CallerError, match="more models"):
        admin.require_grant("acme", {Role.CALLER}, models)

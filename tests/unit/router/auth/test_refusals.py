"""Why a caller is refused: operators learn it, once for each refusal as a figure and at times as a line; callers never do."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from router.auth.keys import KeyHash
from router.errors import CallerError
from tests.unit.router.auth.bench import KEYS, NEW, START, Gate, Signer, build_gate

NOW = datetime.fromtimestamp(START, UTC)


async def refuse(gate: Gate, caplog: pytest.LogCaptureFixture, *credentials: str) -> dict[str, Any]:
    """What the log says of a refusal; the caller hears what every other does, and the counter has one more of the reason."""
    caplog.clear()
    before = gate.counts()
    with caplog.at_level(logging.WARNING), pytest.raises(CallerError) as caught:
        await gate.authenticator.identify([("authorization", it) for it in credentials], {}, "request-1")
    after = gate.counts()
    with pytest.raises(CallerError) as usual:
        await gate.authenticator.identify([], {})
    assert [vars(it.value) | {"why": "", "detail": ""} for it in (caught, usual)] == [vars(usual.value) | {"why": "", "detail": ""}] * 2
    told: dict[str, Any] = vars(caplog.records[0])["fields"]
    assert after - before == Counter({told["reason"]: 1})
    assert told["request_id"] == "request-1"
    return told


KEY_FAULTS: list[tuple[str, dict[str, Any], KeyHash]] = [
    ("revoked", {"revoked_at": NOW}, KEYS),
    ("expired", {"expires_at": NOW}, KEYS),
    ("other_pepper", {}, KeyHash(NEW)),
]


@pytest.mark.parametrize(("reason", "changes", "hashing"), KEY_FAULTS)
async def test_a_key_that_holds_no_more(caplog: pytest.LogCaptureFixture, reason: str, changes: dict[str, Any], hashing: KeyHash) -> None:
    """The line has its prefix, which is public, and since when."""
    gate = await build_gate()
    key = gate.keys.add(hashing, **changes)
    told = await refuse(gate, caplog, f"Bearer {key.text}")
    assert told["reason"] == reason
    assert key.prefix in told["detail"]
    assert key.text not in str(told)
    assert not changes or f"{NOW:%Y-%m-%d}" in told["detail"]


async def test_a_key_that_never_was_one(caplog: pytest.LogCaptureFixture) -> None:
    """Unknown, with another secret, malformed, or none at all."""
    gate = await build_gate()
    key = gate.keys.add()
    texts = {
        "unknown_key": f"Bearer {KEYS.make_key().text}",
        "wrong_key": f"Bearer {key.text[:-1]}{'ab'[key.text.endswith('a')]}",
        "malformed": "Bearer tg_x",
    }
    for reason, text in texts.items():
        assert (await refuse(gate, caplog, text))["reason"] == reason
    assert (await refuse(gate, caplog))["reason"] == "missing"


TOKEN_FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("expired", {"exp": START - 300}),
    ("not_yet_valid", {"nbf": START + 300}),
    ("audience", {"aud": "another"}),
    ("issuer", {"iss": "https://other.example"}),
    ("unknown_kid", {"key_id": "k2"}),
    ("algorithm", {"algorithm": "RS512"}),
    ("claims", {"tenant": None}),
    ("claims", {"exp": None}),
]


@pytest.mark.parametrize(("reason", "changes"), TOKEN_FAULTS)
async def test_a_token(caplog: pytest.LogCaptureFixture, reason: str, changes: dict[str, Any]) -> None:
    """By what is wrong with it."""
    gate = await build_gate(issuer := Signer("k1"))
    issuer.keys.update(Signer("k2").keys)
    signed = issuer.sign(**changes)
    del issuer.keys["k2"]
    assert (await refuse(gate, caplog, f"Bearer {signed}"))["reason"] == reason


async def test_a_token_signed_by_another(caplog: pytest.LogCaptureFixture) -> None:
    """Under a key id that the issuer has."""
    gate = await build_gate(Signer("k1"))
    assert (await refuse(gate, caplog, f"Bearer {Signer('k1').sign()}"))["reason"] == "signature"
    assert (await refuse(gate, caplog, "Bearer a.b.c"))["reason"] == "malformed"


async def test_a_certificate_of_no_service(caplog: pytest.LogCaptureFixture) -> None:
    """The line has its names."""
    gate = await build_gate()
    with caplog.at_level(logging.WARNING), pytest.raises(CallerError):
        await gate.authenticator.identify([], {"transport_security_type": [b"ssl"], "peer_dns": [b"stranger.example"]}, "r")
    told: dict[str, Any] = vars(caplog.records[0])["fields"]
    assert told["reason"] == "certificate"
    assert "stranger.example" in told["detail"]

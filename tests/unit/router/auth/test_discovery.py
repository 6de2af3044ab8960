"""An issuer that is known by its URL alone: where its keys are, and what of its own description is not followed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router import auth_config
from router.auth.assemble import build_key_set
from router.auth.discovery import discovery_url, read_keys_url
from router.errors import RouterError
from tests.unit.router.auth.bench import Clock, Signer

URL = "https://id.example/realms/acme"
HERE = "https://id.example/realms/acme/.well-known/openid-configuration"
KEYS_URL = "https://keys.example/acme"


class Provider:
    """An issuer's documents by URL; what is not there is an error. Remembers what was asked for."""

    def __init__(self, **description: Any) -> None:
        self.description = {"issuer": URL, "jwks_uri": KEYS_URL, **description}
        self.keys = {KEYS_URL: Signer("k1").key_set()}
        self.asked: list[str] = []

    async def fetch(self, url: str) -> bytes:
        self.asked.append(url)
        if url == HERE:
            return json.dumps(self.description).encode()
        if url not in self.keys:
            raise OSError("not found")
        return self.keys[url]


def issuer_of(**settings: Any) -> auth_config.Issuer:
    return auth_config.Issuer(**{"url": URL, "audience": "tidegate", "algorithm": "RS256", **settings})


async def test_keys_are_where_the_issuer_says() -> None:
    """Asked once for all who wait, and not again while the keys are known."""
    provider, clock = Provider(), Clock()
    keys = build_key_set(issuer_of(), provider.fetch, clock)
    assert await keys.find("k1")
    assert await keys.find("k1")
    assert provider.asked == [HERE, KEYS_URL]


async def test_keys_that_move_are_followed() -> None:
    """By the next fetch, as when a key is new; the cooldown holds for both documents together."""
    provider, clock = Provider(), Clock()
    keys = build_key_set(issuer_of(), provider.fetch, clock)
    assert await keys.find("k1")
    provider.description["jwks_uri"] = "https://keys.example/moved"
    provider.keys = {"https://keys.example/moved": Signer("k2").key_set()}
    for _ in range(3):
        assert await keys.find("k2") is None
    clock.time += 30
    assert await keys.find("k2")
    assert provider.asked == [HERE, KEYS_URL, HERE, "https://keys.example/moved"]


async def test_a_url_for_the_keys_skips_discovery() -> None:
    """The issuer's description is not asked for."""
    provider = Provider()
    assert await build_key_set(issuer_of(jwks_url=KEYS_URL), provider.fetch, Clock()).find("k1")
    assert provider.asked == [KEYS_URL]


async def test_a_description_that_is_not_followed_costs_no_key(caplog: pytest.LogCaptureFixture) -> None:
    """The keys we have stay, and the log says why there are no others, in one line whatever the description holds."""
    provider, clock = Provider(), Clock()
    keys = build_key_set(issuer_of(), provider.fetch, clock)
    assert await keys.find("k1")
    provider.description["issuer"] = "https://evil.example\n"
    clock.time += 30
    assert await keys.find("other") is None
    assert await keys.find("k1")
    (record,) = caplog.records
    assert record.getMessage() == f"no keys from {URL}: ValueError 'the discovery document names another issuer'"


async def test_a_description_does_not_choose_the_algorithm() -> None:
    """Keys for another than the configured one are none."""
    provider = Provider(id_token_signing_alg_values_supported=["none", "HS256", "ES256"])
    with pytest.raises(RouterError):
        await build_key_set(issuer_of(algorithm="ES256"), provider.fetch, Clock()).find("k1")


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"jwks_uri": "https://keys.example"}',
        *(
            json.dumps({"issuer": issuer, "jwks_uri": url}).encode()
            for issuer, url in [
                (URL + "/", KEYS_URL),
                (URL.upper(), KEYS_URL),
                ([URL], KEYS_URL),
                (URL, None),
                (URL, [KEYS_URL]),
                (URL, "https://keys.example/" + "x" * 3000),
                (URL, "http://127.0.0.1:9000/keys"),
                (URL, "file:///etc/keys"),
                (URL, "/keys"),
            ]
        ),
    ],
)
def test_descriptions_that_are_not_followed(document: bytes) -> None:
    """Of an issuer that is not exactly the configured one, without a place for keys, or with one on our own loopback."""
    with pytest.raises(ValueError):  # noqa: PT011 - json's are among them
        read_keys_url(document, URL)


@pytest.mark.parametrize(
    ("issuer", "url"),
    [
        ("https://id.example", "https://id.example/.well-known/openid-configuration"),
        ("https://id.example/", "https://id.example/.well-known/openid-configuration"),
        (URL, HERE),
    ],
)
def test_where_an_issuer_describes_itself(issuer: str, url: str) -> None:
    """Behind its URL, with one slash between them."""
    assert discovery_url(issuer) == url


@pytest.mark.parametrize("issuer", ["https://id.example?tenant=a", "https://id.example#a"])
def test_a_url_that_is_no_issuers_is_refused(issuer: str) -> None:
    """The path would become part of the query."""
    with pytest.raises(ValueError, match="query or fragment"):
        discovery_url(issuer)

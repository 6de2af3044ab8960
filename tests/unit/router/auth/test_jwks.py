"""An issuer's keys, and how rarely its key server is asked."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from router.auth.fetch import Fetcher
from router.auth.jwks import KeySet, read_keys
from router.errors import TidegateError
from tests.unit.router.auth.bench import Clock, Signer


def build_keys(signer: Signer, clock: Clock) -> KeySet:
    return KeySet("https://id.example/keys", "RS256", signer.fetch, clock, cooldown_s=30, renew_s=3600, keep_s=86_400)


async def test_keys_are_fetched_when_first_needed() -> None:
    """By all who need them together."""
    signer, clock = Signer("k1"), Clock()
    keys = build_keys(signer, clock)
    found = await asyncio.gather(*(keys.find("k1") for _ in range(10)))
    assert all(found)
    assert signer.fetches == 1


async def test_a_rotated_key_is_found_after_the_cooldown() -> None:
    """And the old one is gone once the issuer has withdrawn it."""
    signer, clock = Signer("k1", "k2"), Clock()
    keys, second = build_keys(signer, clock), signer.keys.pop("k2")
    assert await keys.find("k1")
    signer.keys = {"k2": second}
    assert await keys.find("k2") is None
    clock.time += 30
    assert await keys.find("k2")
    assert await keys.find("k1") is None
    assert signer.fetches == 2


@pytest.mark.parametrize("document", [b"", b"{}", b'{"keys":[]}', b'{"keys":[{"kty":"RSA"}]}', b'{"keys":[7]}', b"[]", b'{"keys":7}'])
async def test_a_bad_document_costs_no_key(document: bytes) -> None:
    """The keys we have stay, and the cooldown holds after a failure too."""
    signer, clock = Signer("k1"), Clock()
    keys = build_keys(signer, clock)
    assert await keys.find("k1")
    signer.document = document
    clock.time += 30
    for _ in range(3):
        assert await keys.find("other") is None
    assert signer.fetches == 2
    assert await keys.find("k1")


async def test_known_keys_do_not_wait_for_the_key_server() -> None:
    """While a slow fetch for an unknown key or a renewal is under way."""
    signer, clock = Signer("k1"), Clock()
    keys = build_keys(signer, clock)
    assert await keys.find("k1")
    signer.gate.clear()
    clock.time += 3601
    unknown = asyncio.create_task(keys.find("other"))
    await asyncio.sleep(0)
    assert await keys.find("k1")
    assert not unknown.done()
    signer.gate.set()
    assert await unknown is None
    assert signer.fetches == 2


async def has_no_keys(keys: KeySet) -> None:
    with pytest.raises(TidegateError) as caught:
        await keys.find("k1")
    assert caught.value.reason == "IDENTITY_UNKNOWN"


async def test_keys_that_could_not_be_renewed_end() -> None:
    """A day without the issuer, and its keys are trusted no more: tokens can then not be checked, as before the first fetch."""
    signer, clock = Signer("k1"), Clock()
    keys = build_keys(signer, clock)
    assert await keys.find("k1")
    signer.document = b""
    clock.time += 86_401
    await has_no_keys(keys)
    await has_no_keys(build_keys(signer, clock))


async def test_a_key_server_has_so_much_time() -> None:
    """One that does not answer is given up, and asked again after the cooldown."""
    signer, clock = Signer("k1"), Clock()
    keys = KeySet("https://id.example/keys", "RS256", signer.fetch, clock, deadline_s=0.01)
    signer.gate.clear()
    await has_no_keys(keys)
    signer.gate.set()
    clock.time += 30
    assert await keys.find("k1")


async def test_closing_ends_a_fetch() -> None:
    """Nothing is left over."""
    signer, clock = Signer("k1"), Clock()
    keys = build_keys(signer, clock)
    signer.gate.clear()
    waiting = asyncio.create_task(keys.find("k1"))
    await asyncio.sleep(0)
    await keys.close()
    assert await asyncio.gather(waiting, return_exceptions=True)


def test_only_keys_that_fit_the_algorithm_are_kept() -> None:
    """A key for encryption, of another kind, for another algorithm, without an id or unreadable is left out; the others stay."""
    (good,) = json.loads(Signer("good").key_set())["keys"]
    others: list[dict[str, object]] = [{"use": "enc"}, {"kty": "oct", "k": "AA"}, {"alg": "PS256"}, {"kid": None}, {"n": "!"}]
    entries = [{**good, "kid": f"bad{number}", **changes} for number, changes in enumerate(others)]
    assert set(read_keys(json.dumps({"keys": [*entries, good]}).encode(), "RS256")) == {"good"}


class _Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answers = {"/keys": (200, b"{}"), "/large": (200, b"x" * 1_100_000), "/moved": (302, b"")}
        status, body = answers.get(self.path, (404, b""))
        self.send_response(status)
        self.send_header("Location", "/keys")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    """A key server on loopback."""
    with HTTPServer(("127.0.0.1", 0), _Server) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


async def test_a_document_is_fetched_within_limits(address: str) -> None:
    """Not too large, not from where a redirect points, not over plain HTTP from elsewhere, not from a file."""
    with ThreadPoolExecutor(1) as executor:
        fetcher = Fetcher(executor)
        assert await fetcher.fetch(f"{address}/keys") == b"{}"
        for url in (f"{address}/large", f"{address}/moved", f"{address}/none", "http://id.example/keys", "file:///etc/hostname"):
            with pytest.raises((OSError, ValueError)):
                await fetcher.fetch(url)

"""How the Python SDK shows who it is: a key, a token, a certificate of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tidegate import AccessDenied, Client, Tls, Unavailable

from tests.bench.authority import Authority
from tests.bench.router import run_router
from tests.bench.tenants import make_key
from tests.bench.worker import Worker

SPIFFE = "spiffe://acme/billing"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    authority = Authority(tmp_path / "ca")
    authority.issue("server", "DNS:gateway.acme")
    authority.issue("billing", f"URI:{SPIFFE}")
    return authority


@pytest.fixture
async def worker(chatml: Path) -> AsyncIterator[Worker]:
    async with Worker(chatml, ["ab"]).running() as worker:
        yield worker


def tls_of(authority: Authority, name: str = "") -> Tls:
    """What a client trusts and shows; the certificate of the router has another name than its address."""
    shown = {"certificate": authority.folder / f"{name}.pem", "private_key": authority.folder / f"{name}.key"} if name else {}
    return Tls(ca=authority.folder / "ca.pem", server_name="gateway.acme", **shown)


async def ask(target: str, **options: Any) -> str:
    async with Client(target, **options) as client:
        return await client.chat("hi", max_output_tokens=2).text()


async def test_a_key_is_shown_over_tls(authority: Authority, worker: Worker) -> None:
    """As key, and as token made anew for each stream; a wrong key is told apart from a router that cannot be reached."""
    async with run_router(worker.folder, worker.address, tls=authority.section(), auth={}) as router:
        key, tls = await make_key(router), tls_of(authority)
        assert await ask(router.target, key=key, tls=tls) == "ab"
        assert await ask(router.target, token=lambda: key, tls=tls) == "ab"
        with pytest.raises(AccessDenied, match="UNAUTHENTICATED"):
            await ask(router.target, key=f"{key}x", tls=tls)
        with pytest.raises(Unavailable, match="UNREACHABLE"):
            await ask(router.target, key=key)


async def test_a_certificate_may_be_all_that_is_shown(authority: Authority, worker: Worker) -> None:
    """The router knows the service by it."""
    tls = authority.section(client_ca=str(authority.folder / "ca.pem"))
    auth = {"services": [{"name": SPIFFE, "tenant": "acme", "user": "billing"}]}
    async with run_router(worker.folder, worker.address, tls=tls, auth=auth) as router:
        assert await ask(router.target, tls=tls_of(authority, "billing")) == "ab"
        with pytest.raises(Unavailable):
            await ask(router.target, tls=tls_of(authority))

"""Encryption on a real port: who may connect, whom a certificate stands for, and a certificate that is renewed."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import grpc
import h11
import pytest
from tidegate.v1.chat_service_pb2 import CompleteRequest
from tidegate.v1.chat_service_pb2_grpc import ChatServiceStub
from tidegate.v1.turn_pb2 import TurnSpec

from tests.bench.authority import Authority
from tests.bench.calls import failure_of
from tests.bench.http import chat, connect
from tests.bench.router import Router, run_router
from tests.bench.tenants import bearer, entries, make_key
from tests.bench.whole import ask
from tests.bench.worker import Worker

ASK = CompleteRequest(spec=TurnSpec(messages=[ask()], max_output_tokens=2))
SPIFFE = "spiffe://acme/billing"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = Authority(tmp_path_factory.mktemp("tls") / "ca")
    authority.issue("server", "DNS:localhost")
    authority.issue("billing", f"URI:{SPIFFE}")
    authority.issue("stranger", "URI:spiffe://acme/other")
    return authority


async def call(router: Router, credentials: grpc.ChannelCredentials, metadata: Any = ()) -> Any:
    """One turn; its text, or the error."""
    address = f"localhost:{router.target.rpartition(':')[2]}"
    async with grpc.aio.secure_channel(address, credentials) as channel:
        stub = ChatServiceStub(channel)  # type: ignore[no-untyped-call]
        try:
            return (await stub.Complete(ASK, metadata=metadata, timeout=5)).text
        except grpc.aio.AioRpcError:
            return await failure_of(stub.Complete(ASK, metadata=metadata, timeout=5))


async def ask_http(router: Router, authority: Authority, name: str = "", **headers: str) -> int:
    """The status of one turn over HTTPS; 0 when no connection comes about."""
    context = ssl.create_default_context(cafile=str(authority.folder / "ca.pem"))
    if name:
        context.load_cert_chain(authority.folder / f"{name}.pem", authority.folder / f"{name}.key")
    try:
        async with connect(f"localhost:{router.http.rpartition(':')[2]}", ssl=context) as caller:
            return (await caller.ask(value=chat("hi"), **headers)).status
    except (OSError, h11.RemoteProtocolError):
        return 0


async def test_an_encrypted_port_takes_keys_and_no_plaintext(chatml: Path, authority: Authority) -> None:
    """A key over TLS is served; plaintext is not, and tells the router nothing."""
    async with Worker(chatml, ["ab"]).running() as worker, run_router(chatml, worker.address, tls=authority.section(), auth={}) as router:
        key = await make_key(router)
        assert await call(router, authority.client(), bearer(key)) == "ab"
        assert (await call(router, authority.client())).code is grpc.StatusCode.UNAUTHENTICATED
        async with router.stub() as stub:
            assert (await failure_of(stub.Complete(ASK, metadata=bearer(key), timeout=5))).code is grpc.StatusCode.UNAVAILABLE
        assert await ask_http(router, authority, authorization=f"Bearer {key}") == 200
        assert await ask_http(router, authority) == 401
        async with connect(router.http) as plain:
            plain.writer.write(b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n")
            assert await plain.reader.read() == b""


async def test_a_certificate_stands_for_a_service(chatml: Path, authority: Authority) -> None:
    """Its SPIFFE id is whom the ledger names; one of a stranger, or none, does not get in."""
    services = [{"name": SPIFFE, "tenant": "acme", "user": "billing"}]
    tls = authority.section(client_ca=str(authority.folder / "ca.pem"))
    async with Worker(chatml, ["ab"]).running() as worker:
        async with run_router(chatml, worker.address, tls=tls, auth={"services": services}) as router:
            assert await call(router, authority.client("billing")) == "ab"
            assert (await call(router, authority.client("stranger"))).code is grpc.StatusCode.UNAUTHENTICATED
            assert (await call(router, authority.client())).code is grpc.StatusCode.UNAVAILABLE
            assert [await ask_http(router, authority, name) for name in ("billing", "stranger", "")] == [200, 401, 0]
            assert [(entry.tenant, entry.user) for entry in await entries(router)] == [("acme", "billing")] * 2


async def test_a_renewed_certificate_is_used_without_a_restart(chatml: Path, authority: Authority, tmp_path: Path) -> None:
    """Callers who trust only the new authority get in as soon as the files are there; a file that is missing keeps the old one."""
    renewed = Authority(tmp_path / "renewed")
    renewed.issue("server", "DNS:localhost")
    paths = {"certificate": tmp_path / "server.pem", "key": tmp_path / "server.key"}
    install(authority, paths)
    tls = {name: str(path) for name, path in paths.items()}
    async with Worker(chatml, ["ab"]).running() as worker, run_router(chatml, worker.address, tls=tls, auth={}) as router:
        headers = bearer(await make_key(router))
        assert await call(router, authority.client(), headers) == "ab"
        paths["certificate"].unlink()
        assert await call(router, authority.client(), headers) == "ab"
        assert await ask_http(router, authority, **dict(headers)) == 200
        install(renewed, paths)
        assert await call(router, renewed.client(), headers) == "ab"
        async with asyncio.timeout(5.0):  # the HTTP port looks once a second
            while await ask_http(router, renewed, **dict(headers)) != 200:
                pass


def install(authority: Authority, paths: dict[str, Path]) -> None:
    for path in paths.values():
        path.write_bytes(authority.read(path.name))

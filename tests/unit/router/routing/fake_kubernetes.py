"""A Kubernetes API server as far as EndpointSlices are read: list and watch over HTTPS, with a token."""

from __future__ import annotations

import asyncio
import datetime
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PATH = "/apis/discovery.k8s.io/v1/namespaces/models/endpointslices"


def make_slice(name: str, *hosts: str, not_ready: str = "", family: str = "IPv4") -> dict[str, Any]:
    """An EndpointSlice of ready pods, and one that is not."""
    ready = [{"addresses": [host], "conditions": {"ready": True, "serving": True, "terminating": False}} for host in hosts]
    other = [{"addresses": [not_ready], "conditions": {"ready": False}}] if not_ready else []
    ports = [{"name": "grpc", "port": 8001, "protocol": "TCP"}, {"name": "http", "port": 8000, "protocol": "TCP"}]
    return {"metadata": {"name": name}, "addressType": family, "endpoints": ready + other, "ports": ports}


class FakeKubernetes:
    """Keeps slices and tells watchers of changes; `lists` and `watches` are the versions that were asked for."""

    def __init__(self, folder: Path) -> None:
        self.slices: dict[str, dict[str, Any]] = {}
        self.token = "first"
        self.lists = 0
        self.watches: list[str] = []
        self.url = ""
        self.account = folder
        self._version = 100
        self._watchers: set[asyncio.Queue[str | None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakeKubernetes]:
        self.write_token(self.token)
        runner = web.AppRunner(self._build())
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=make_identity(self.account))
        await site.start()
        self.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            self.end_watches()
            await runner.cleanup()

    def write_token(self, token: str) -> None:
        (self.account / "token").write_text(f"{token}\n")

    def put(self, item: dict[str, Any]) -> None:
        """A slice is new, or has changed."""
        name = item["metadata"]["name"]
        kind = "MODIFIED" if name in self.slices else "ADDED"
        self.slices[name] = self._stamp(item)
        self.tell({"type": kind, "object": item})

    def delete(self, name: str) -> None:
        self.tell({"type": "DELETED", "object": self._stamp(self.slices.pop(name))})

    def tell(self, event: dict[str, Any]) -> None:
        """Sends an event as it is to all who watch."""
        self.tell_raw(json.dumps(event))

    def tell_raw(self, line: str) -> None:
        for watcher in self._watchers:
            watcher.put_nowait(line)

    def end_watches(self) -> None:
        """As the server does when their time is over."""
        for watcher in self._watchers:
            watcher.put_nowait(None)

    def bookmark(self) -> str:
        """Tells the version, without a change."""
        item = self._stamp({"metadata": {}})
        self.tell({"type": "BOOKMARK", "object": item})
        version: str = item["metadata"]["resourceVersion"]
        return version

    def _stamp(self, item: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        return item

    def _build(self) -> web.Application:
        app = web.Application()
        app.router.add_get(PATH, self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return web.Response(status=401)
        if request.query["labelSelector"] != "kubernetes.io/service-name=workers":
            return web.Response(status=400)
        return await self._watch(request) if request.query.get("watch") else self._list()

    def _list(self) -> web.Response:
        self.lists += 1
        return web.json_response({"metadata": {"resourceVersion": str(self._version)}, "items": list(self.slices.values())})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response, watcher = web.StreamResponse(), asyncio.Queue[str | None]()
        await response.prepare(request)
        self._watchers.add(watcher)
        self.watches.append(request.query["resourceVersion"])
        try:
            while (line := await watcher.get()) is not None:
                await response.write(line.encode() + b"\n")
        finally:
            self._watchers.discard(watcher)
        return response


def make_identity(folder: Path) -> ssl.SSLContext:
    """A certificate for 127.0.0.1 that is its own authority, which is written to `ca.crt`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake kubernetes")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "ca.crt").write_bytes(certificate)
    (folder / "server.pem").write_bytes(private + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context

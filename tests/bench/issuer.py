"""An OpenID Connect issuer on a real port: it describes itself, serves its keys, and signs tokens that are valid now."""

from __future__ import annotations

import json
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from tests.bench.authority import Authority
from tests.unit.router.auth.bench import Signer

DISCOVERY = "/.well-known/openid-configuration"


class Issuer:
    """The issuer at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.signer = Signer("k1")
        self.keys_path = "/keys"
        self.hits: Counter[str] = Counter()
        """How often each path was asked for."""

    def section(self, **more: Any) -> dict[str, Any]:
        """The router's `[[auth.issuers]]`: nothing says where the keys are."""
        return {"url": self.url, "audience": "tidegate", "algorithm": "RS256", **more}

    def token(self, key_id: str = "k1", **claims: Any) -> str:
        """A token for acme's ann."""
        return self.signer.sign(key_id, **self.claims(**claims))

    def claims(self, **claims: Any) -> dict[str, Any]:
        """What a token says."""
        return {"iss": self.url, "exp": time.time() + 60, **claims}

    def answer(self, path: str) -> bytes | None:
        """The document at a path."""
        self.hits[path] += 1
        if path == DISCOVERY:
            return json.dumps({"issuer": self.url, "jwks_uri": self.url + self.keys_path}).encode()
        return self.signer.key_set() if path == self.keys_path else None


@contextmanager
def run_issuer(authority: Authority | None = None) -> Iterator[Issuer]:
    """Serves until the block ends; encrypted with `authority`'s certificate for `server`, if there is one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            document = issuer.answer(self.path)
            self.send_response(404 if document is None else 200)
            self.end_headers()
            self.wfile.write(document or b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if authority:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(authority.folder / "server.pem", authority.folder / "server.key")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        issuer = Issuer(f"{'https' if authority else 'http'}://localhost:{server.server_port}")
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()

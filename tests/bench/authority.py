"""A certificate authority for tests of encrypted ports."""

from __future__ import annotations

import subprocess
from pathlib import Path

import grpc


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test", "-days", "2"
        )

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def issue(self, name: str, alternative: str) -> None:
        """A key and a certificate with a subject alternative name, as NAME.key and NAME.pem."""
        (self.folder / "ext").write_text(f"subjectAltName={alternative}")
        self._openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", "csr", "-subj", f"/CN={name}")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "ext", "-days", "2")
        self._openssl("x509", "-req", "-in", "csr", "-out", f"{name}.pem", *signing)

    def client(self, name: str = "") -> grpc.ChannelCredentials:
        """What a caller connects with; it shows the certificate of that name."""
        shown = (self.read(f"{name}.key"), self.read(f"{name}.pem")) if name else (None, None)
        return grpc.ssl_channel_credentials(self.read("ca.pem"), *shown)

    def server(self, name: str = "server") -> grpc.ServerCredentials:
        """What a server that wants certificates of this authority listens with."""
        return grpc.ssl_server_credentials([(self.read(f"{name}.key"), self.read(f"{name}.pem"))], self.read("ca.pem"), True)

    def link(self, name: str) -> dict[str, str]:
        """The router's `[worker_link]`, with the certificate of that name to show."""
        return {"ca": str(self.folder / "ca.pem"), "certificate": str(self.folder / f"{name}.pem"), "key": str(self.folder / f"{name}.key")}

    def section(self, **more: str) -> dict[str, str]:
        """The router's `[tls]`."""
        return {"certificate": str(self.folder / "server.pem"), "key": str(self.folder / "server.key"), **more}

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(("openssl", *arguments), cwd=self.folder, check=True, capture_output=True)

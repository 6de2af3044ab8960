"""Who may reach Triton's ports, and what they may ask there: the part of tritonserver's command line that keeps others out."""

from __future__ import annotations

import argparse
import ipaddress
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_UNUSED = ("shared-memory", "model-repository", "statistics", "trace", "logging")
_HTTP_UNUSED = ("metadata", "inference", "model-config", *_UNUSED)


class ExposureInvalid(ValueError):
    """Ports would be open to anybody."""

    reason = "EXPOSURE_INVALID"


@dataclass(frozen=True, slots=True)
class MutualTls:
    """Files in PEM: Triton's certificate and key, and the authority of routers' certificates. Triton reads them when it starts."""

    certificate: Path
    key: Path
    client_ca: Path


def build_exposure(tls: MutualTls | None) -> Iterator[str]:
    """Tritonserver's arguments.

    What no router needs is refused to all: it wants a header whose value nobody knows. HTTP is left for probes alone. Whoever may
    register shared memory may name the Python backend's own (CVE-2025-23319).
    """
    closed = f"closed={secrets.token_hex(16)}"
    yield f"--grpc-restricted-protocol={','.join(_UNUSED)}:{closed}"
    yield f"--http-restricted-api={','.join(_HTTP_UNUSED)}:{closed}"
    if tls:
        yield "--grpc-use-ssl=true"
        yield "--grpc-use-ssl-mutual=true"
        yield f"--grpc-server-cert={tls.certificate}"
        yield f"--grpc-server-key={tls.key}"
        yield f"--grpc-root-cert={tls.client_ca}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of a command that starts Triton; `read_tls` reads them."""
    parser.add_argument(
        "--host", default="127.0.0.1", help="where to listen (default %(default)s); elsewhere than on loopback the next four are needed"
    )
    for name in ("certificate", "key", "client-ca"):
        parser.add_argument(f"--tls-{name}", type=Path, metavar="PEM", help="mutual TLS on the gRPC port")
    parser.add_argument("--lane-credential", type=Path, metavar="FILE", help="secrets, one a line, by which routers are known")
    parser.add_argument("--plaintext-anywhere", action="store_true", help="neither is needed: the network encrypts and authenticates")


def read_tls(arguments: argparse.Namespace) -> MutualTls | None:
    """What the arguments say. Raises ExposureInvalid when the ports would be open to anybody."""
    files = (arguments.tls_certificate, arguments.tls_key, arguments.tls_client_ca)
    if any(files) and not all(files):
        raise ExposureInvalid("--tls-certificate, --tls-key and --tls-client-ca go together")
    is_closed = all(files) and arguments.lane_credential
    if not (is_closed or arguments.plaintext_anywhere or _is_loopback(arguments.host)):
        wanted = "--tls-certificate, --tls-key, --tls-client-ca and --lane-credential"
        raise ExposureInvalid(f"--host: other than loopback addresses need {wanted}, or --plaintext-anywhere")
    return MutualTls(*files) if all(files) else None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""How a tritonserver is to run, and the command line that says so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from server.exposure import MutualTls, build_exposure


@dataclass(frozen=True, slots=True)
class TritonOptions:
    """How to run Triton on a rendered model repository; port 0 takes a free one, times are in seconds.

    `binary` is found by `server.installation` when it is None. `trace_url` is an OTLP/HTTP endpoint; Triton then traces the
    requests that carry a `traceparent`, and no others. With
    `tls` the gRPC port takes only those who show a certificate. `env` is added to the launcher's own environment.
    """

    repository: Path
    binary: Path | None = None
    host: str = "127.0.0.1"
    grpc_port: int = 0
    http_port: int = 0
    metrics_port: int = 0
    trace_url: str | None = None
    tls: MutualTls | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    ready_timeout_s: float = 120.0
    stop_timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where a Triton listens, each as ``host:port``."""

    grpc: str
    http: str
    metrics: str


def build_arguments(options: TritonOptions, endpoints: Endpoints, segments: str) -> list[str]:
    """Return tritonserver's arguments; the names of its shared memory segments will begin with `segments`."""
    return [
        f"--model-repository={options.repository.absolute()}",
        # Our configurations are complete, and completing them would start every model.py twice.
        "--disable-auto-complete-config",
        *build_exposure(options.tls),
        *_listen("grpc", endpoints.grpc),
        *_listen("http", endpoints.http),
        *_listen("metrics", endpoints.metrics),
        f"--exit-timeout-secs={math.ceil(options.stop_timeout_s)}",
        f"--backend-config=python,shm-region-prefix-name={segments}",
        *(_trace(options.trace_url) if options.trace_url else ()),
    ]


def _listen(protocol: str, address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    return f"--{protocol}-address={host}", f"--{protocol}-port={port}"


def _trace(url: str) -> list[str]:
    settings = (
        "mode=opentelemetry",
        f"opentelemetry,url={url}",
        "opentelemetry,resource=service.name=triton",
        "opentelemetry,bsp_schedule_delay=500",
        "level=TIMESTAMPS",
        # Every request that carries a context is traced whatever the rate; 0 adds no others.
        "rate=0",
        "count=-1",
    )
    return [f"--trace-config={setting}" for setting in settings]

"""A gRPC server of a test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc


@asynccontextmanager
async def run_server(add: Callable[[Any, grpc.aio.Server], Any], service: Any) -> AsyncIterator[str]:
    """Serves a service, which the generated function `add` adds; gives the address. What runs when this is left is cancelled."""
    server = grpc.aio.server()
    add(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)

"""A router that takes no stream, and says why."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from tidegate.v1.chat_service_pb2 import ConverseRequest
from tidegate.v1.chat_service_pb2_grpc import ChatServiceServicer, add_ChatServiceServicer_to_server

from router.errors import TidegateError
from router.transport.status import abort


class Refusing(ChatServiceServicer):
    """Ends every stream with this error once it knows what is wanted; `refused` is called before."""

    def __init__(self, error: TidegateError, refused: Callable[[], None]) -> None:
        self._error = error
        self._refused = refused

    async def Converse(self, requests: AsyncIterator[ConverseRequest], context: Any) -> None:
        await anext(requests)
        self._refused()
        await abort(context, self._error, "refused")


@asynccontextmanager
async def run_refusing(error: TidegateError, refused: Callable[[], None]) -> AsyncIterator[str]:
    """Gives its address."""
    server = grpc.aio.server()
    add_ChatServiceServicer_to_server(Refusing(error, refused), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)

"""A router that takes no stream, and says why."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from tidegate.v1.chat_service_pb2 import ConverseRequest
from tidegate.v1.chat_service_pb2_grpc import ChatServiceServicer, add_ChatServiceServicer_to_server

from router.errors import TidegateError
from router.transport.status import abort
from tests.bench.serving import run_server


class Refusing(ChatServiceServicer):
    """Ends every stream with this error once it knows what is wanted; `refused` is called before."""

    def __init__(self, error: TidegateError, refused: Callable[[], None]) -> None:
        self._error = error
        self._refused = refused

    async def Converse(self, requests: AsyncIterator[ConverseRequest], context: Any) -> None:
        await anext(requests)
        self._refused()
        await abort(context, self._error, "refused")


def run_refusing(error: TidegateError, refused: Callable[[], None]) -> AbstractAsyncContextManager[str]:
    """Gives its address."""
    return run_server(add_ChatServiceServicer_to_server, Refusing(error, refused))

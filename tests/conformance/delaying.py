"""An attempt to resume a stream that is late on its way: its connection breaks, and it comes to the router behind a newer one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import grpc
from tidegate.v1.chat_service_pb2 import ConverseRequest
from tidegate.v1.chat_service_pb2_grpc import ChatServiceServicer, ChatServiceStub, add_ChatServiceServicer_to_server

from tests.bench.serving import run_server
from tests.bench.wires import GrpcWire, refusal_of


class Delaying(ChatServiceServicer):
    """Hands the first message of a stream to `delayed`, which breaks the connection."""

    def __init__(self, delayed: Callable[[ConverseRequest], None]) -> None:
        self._delayed = delayed

    async def Converse(self, requests: AsyncIterator[ConverseRequest], context: Any) -> None:
        self._delayed(await anext(requests))
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")


def run_delaying(delayed: Callable[[ConverseRequest], None]) -> AbstractAsyncContextManager[str]:
    """Gives its address."""
    return run_server(add_ChatServiceServicer_to_server, Delaying(delayed))


async def arrive_late(target: str, request: ConverseRequest) -> str:
    """The attempt comes to the router; gives the reason with which it is refused."""
    async with grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub: Any = ChatServiceStub(channel)  # type: ignore[no-untyped-call]
        wire = GrpcWire(stub.Converse())
        await wire.send(request)
        _, reason = await refusal_of(wire)
        return reason

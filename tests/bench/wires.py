"""The two ways to speak Converse: a gRPC stream, and a WebSocket. A test that is given a `Face` says the same over both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
import pytest
from google.protobuf import json_format
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from tidegate import TidegateError
from tidegate.errors import from_rpc_error, stream_lost
from tidegate.v1.chat_service_pb2 import ConverseRequest, ConverseResponse, Resume, Setup
from tidegate.v1.chat_service_pb2_grpc import ChatServiceStub
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.bench.router import Router

_GOOD = (1000, 1001)
_FAULTS = 4000


class Wire(Protocol):
    """One connection."""

    async def send(self, request: ConverseRequest) -> None:
        """Sends a message; that it is lost is for `receive` to find."""

    async def receive(self) -> ConverseResponse | None:
        """The next frame; None at a good end. Raises TidegateError at any other."""

    async def half_close(self) -> None:
        """No more input. A WebSocket is closed by this on both sides."""

    def cut(self) -> None:
        """Leaves it as it is."""


Dial = Callable[..., Awaitable[Wire]]
"""Opens a connection; `headers` are pairs of texts."""


@dataclass(frozen=True, slots=True)
class Face:
    """One of the two: where a router has it, and how it is dialled there, over TCP connections of its own."""

    address_of: Callable[[Router], str]
    dialling: Callable[[str], AbstractAsyncContextManager[Dial]]

    def at(self, router: Router) -> AbstractAsyncContextManager[Dial]:
        """Dials this router. What is still open is cut when left."""
        return self.dialling(self.address_of(router))


class GrpcWire:
    """A Converse stream."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def send(self, request: ConverseRequest) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self._call.write(request)

    async def receive(self) -> ConverseResponse | None:
        try:
            frame = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        return frame if isinstance(frame, ConverseResponse) else None

    async def half_close(self) -> None:
        await self._call.done_writing()

    def cut(self) -> None:
        self._call.cancel()


class SocketWire:
    """A WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, request: ConverseRequest) -> None:
        with suppress(ConnectionClosed):
            await self._socket.send(json_format.MessageToJson(request, indent=None))

    async def receive(self) -> ConverseResponse | None:
        try:
            return json_format.Parse(await self._socket.recv(), ConverseResponse())
        except ConnectionClosed as closed:
            _read_end(closed)
            return None

    async def half_close(self) -> None:
        await self._socket.close()

    def cut(self) -> None:
        self._socket.transport.abort()


def _read_end(closed: ConnectionClosed) -> None:
    if closed.rcvd is None or _GOOD[-1] < closed.rcvd.code < _FAULTS:
        raise stream_lost("the connection to the router broke") from None
    if closed.rcvd.code not in _GOOD:
        reason, _, message = closed.rcvd.reason.partition(": ")
        status = Status(code=closed.rcvd.code - _FAULTS, message=message)
        status.details.add().Pack(ErrorInfo(reason=reason))
        raise TidegateError(status) from None


@asynccontextmanager
async def dialling_grpc(target: str, **options: int) -> AsyncIterator[Dial]:
    """Dials gRPC; `options` are the channel's."""
    own = {"grpc.use_local_subchannel_pool": 1, **options}
    async with grpc.aio.insecure_channel(target, options=tuple(own.items())) as channel:
        stub: Any = ChatServiceStub(channel)  # type: ignore[no-untyped-call]

        async def dial(headers: tuple[tuple[str, str], ...] = ()) -> Wire:
            return GrpcWire(stub.Converse(metadata=headers))

        yield dial


@asynccontextmanager
async def dialling_socket(address: str, **options: Any) -> AsyncIterator[Dial]:
    """Dials WebSockets; `options` are theirs."""
    opened: list[Wire] = []

    async def dial(headers: tuple[tuple[str, str], ...] = ()) -> Wire:
        socket = await open_socket(
            f"ws://{address}/v1/converse", additional_headers=headers, subprotocols=[Subprotocol("tidegate.v1")], **options
        )
        opened.append(SocketWire(socket))
        return opened[-1]

    try:
        yield dial
    finally:
        for wire in opened:
            wire.cut()


GRPC = Face(lambda router: router.target, dialling_grpc)
SOCKET = Face(lambda router: router.http, dialling_socket)

on_both_faces = pytest.mark.parametrize("face", [pytest.param(GRPC, id="grpc"), pytest.param(SOCKET, id="websocket")])
"""For a test that takes a `face`."""


async def end_of(wire: Wire) -> TidegateError | None:
    """What a connection ends with, whatever frames come before; None is a good end."""
    try:
        while await wire.receive() is not None:
            pass
    except TidegateError as error:
        return error
    return None


async def refusal_of(wire: Wire) -> tuple[grpc.StatusCode, str]:
    """What a connection ends with."""
    error = await end_of(wire)
    assert error is not None
    return error.code, error.reason


async def ask_for_stream(dial: Dial, stream_id: str, arrived: int, attempt: int = 0) -> Wire:
    """A connection that has asked for a stream, in an attempt with this number."""
    wire = await dial()
    await wire.send(ConverseRequest(setup=Setup(resume=Resume(stream_id=stream_id, after_sequence=arrived, attempt=attempt))))
    return wire

"""A stream that is ended in the middle of its first write ends for its caller too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from router.errors import stream_taken
from router.transport.status import StatusInterceptor
from router.transport.writer import Context, Writer, begin_answer

METHOD = "/test.Streams/Talk"


class Source:
    """One frame, and no end."""

    def __init__(self) -> None:
        self._frames = [b"x"]

    async def take(self) -> bytes | None:
        if not self._frames:
            await asyncio.Event().wait()
        return self._frames.pop()


async def talk(requests: AsyncIterator[bytes], context: Context) -> None:
    """Is interrupted at once when its first write has begun, as by another connection that takes the stream."""
    write = await begin_answer(context)

    async def interrupted(frame: Any) -> None:
        asyncio.get_running_loop().call_soon(writer.interrupt, stream_taken())
        await write(frame)

    writer = Writer(interrupted)
    await writer.send_all(Source())


async def admit(method: str) -> None:
    """Everybody."""


async def test_an_interrupted_first_write_ends_the_call_for_its_caller() -> None:
    """With its status; the headers are not sent twice, which C-core refuses, so that the call would never end."""
    handler = grpc.stream_stream_rpc_method_handler(talk, request_deserializer=bytes, response_serializer=bytes)
    server = grpc.aio.server(interceptors=(StatusInterceptor(admit),))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Streams", {"Talk": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            for _ in range(20):
                call = channel.stream_stream(METHOD, request_serializer=bytes, response_deserializer=bytes)(iter(()), timeout=20.0)
                with pytest.raises(grpc.aio.AioRpcError) as ended:
                    async for _frame in call:
                        pass
                assert ended.value.code() is grpc.StatusCode.ABORTED
    finally:
        await server.stop(None)

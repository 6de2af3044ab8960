"""One request stops nobody, whatever is in it: the loop's longest pause, the router's memory and the answer, for a table of hostile ones.

Pauses are measured as time of the loop's own thread between two of its turns, so that other programs do not count.
"""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from tidegate.v1.chat_service_pb2 import CompleteRequest, ConverseRequest, CountTokensRequest
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed

from tests.bench import hostile
from tests.bench.http import connect
from tests.bench.router import Router
from tests.bench.tenants import bearer, make_key
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Worker

PAUSE_S = 0.15
"""Three times the most that was measured where this was written, 50 ms; before they were bounded, pauses were of up to 25 s."""
GROWTH = 64 * 1024
"""In KiB."""
SIZES = (96 * 1024, 280 * 1024, hostile.SIZE)
"""At the bounds of structure, and at that of bytes."""

Send = Callable[[bytes], Awaitable[str]]


@asynccontextmanager
async def longest_pause() -> AsyncIterator[list[float]]:
    """The longest turn of this loop so far, in the list's only place."""
    pauses = [0.0]

    async def watch() -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            pauses[0], last = max(pauses[0], time.thread_time() - last), time.thread_time()

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    try:
        yield pauses
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def check(table: Mapping[str, bytes], send: Send, refusals: str) -> None:
    """Sends all of a table, one by one."""
    wrong = {}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, data in table.items():
        async with longest_pause() as pauses:
            answer = await send(data)
        if pauses[0] > PAUSE_S or answer not in refusals.split():
            wrong[name] = (answer, round(pauses[0], 3))
    assert not wrong
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH


@pytest.fixture
async def router(chatml: Path) -> AsyncIterator[Router]:
    """A router that lets nobody in without a key; at the end it still serves."""
    async with run_bench(chatml, Worker(chatml), auth={"anonymous": False}) as running:
        yield running
        async with running.client(key=await make_key(running)) as client:
            assert await client.chat(ask()).text() == "ok"


def http_sender(router: Router, path: str, key: str) -> Send:
    async def send(body: bytes) -> str:
        async with connect(router.http) as caller:
            head = (
                b"POST %b HTTP/1.1\r\nhost: t\r\nauthorization: Bearer %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            )
            caller.writer.write(head % (path.encode(), key.encode(), len(body)))
            for at in range(0, len(body), 65_536):
                caller.writer.write(body[at : at + 65_536])
                await caller.writer.drain()
            return (await caller.reader.readuntil(b"\r\n\r\n")).split()[1].decode()

    return send


def grpc_sender(channel: grpc.aio.Channel, method: str, key: str) -> Send:
    call = channel.unary_unary(f"/tidegate.v1.ChatService/{method}", request_serializer=bytes, response_deserializer=bytes)

    async def send(data: bytes) -> str:
        try:
            await call(data, metadata=bearer(key))
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return "OK"

    return send


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_no_http_body_stops_the_router(router: Router, path: str, size: int) -> None:
    """Nor takes its memory; what cannot be served is refused as the caller's fault. What has only few parts may be served."""
    table = hostile.chat_bodies(size) if "chat" in path else hostile.completion_bodies(size)
    await check(table, http_sender(router, path, await make_key(router)), "400 200")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("method", "kind"), [("Complete", CompleteRequest), ("CountTokens", CountTokensRequest)])
async def test_no_grpc_message_stops_the_router(router: Router, method: str, kind: type, size: int) -> None:
    """Each list that a request has, filled with empty elements, which cost two bytes each; with a key and without."""
    table = dict(hostile.messages(kind, size)) | {"a long prompt": hostile.long_prompts()[method]}
    assert len(table) > 2
    async with grpc.aio.insecure_channel(router.target, options=(("grpc.max_send_message_length", -1),)) as channel:
        await check(table, grpc_sender(channel, method, await make_key(router)), "INVALID_ARGUMENT")
        await check(table, grpc_sender(channel, method, "none"), "INVALID_ARGUMENT UNAUTHENTICATED")


@pytest.mark.parametrize("size", SIZES)
async def test_no_frame_of_a_stream_stops_the_router(router: Router, size: int) -> None:
    """As the first on a Converse stream."""
    key = await make_key(router)

    async def send(data: bytes) -> str:
        call = channel.stream_stream("/tidegate.v1.ChatService/Converse", request_serializer=bytes, response_deserializer=bytes)
        stream = call(iter([data]), metadata=bearer(key))
        try:
            async for _ in stream:
                pass
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return "OK"

    async with grpc.aio.insecure_channel(router.target, options=(("grpc.max_send_message_length", -1),)) as channel:
        await check(hostile.messages(ConverseRequest, size), send, "INVALID_ARGUMENT FAILED_PRECONDITION OK")


@pytest.mark.parametrize("size", [24 * 1024, *SIZES])
async def test_no_message_on_the_websocket_stops_the_router(router: Router, size: int) -> None:
    """Of protobuf's JSON form, which is read in Python."""
    headers = {"authorization": f"Bearer {await make_key(router)}"}

    async def send(text: bytes) -> str:
        async with open_socket(f"ws://{router.http}/v1/converse", additional_headers=headers, max_size=None) as socket:
            try:
                await socket.send(text.decode())
                while True:
                    json.loads(await socket.recv())
            except ConnectionClosed as closed:
                return str(closed.rcvd and closed.rcvd.code)

    table = {name: text.encode() for name, text in hostile.socket_texts(size).items()}
    await check(table, send, "4003 4009")


async def test_compressed_messages_are_refused(router: Router) -> None:
    """A few kilobytes would be two million messages before anybody has asked who calls."""
    async with grpc.aio.insecure_channel(router.target, compression=grpc.Compression.Gzip) as channel:
        data = hostile.messages(CompleteRequest)["CompleteRequest, spec.messages"]
        assert await grpc_sender(channel, "Complete", "none")(data) == "UNIMPLEMENTED"

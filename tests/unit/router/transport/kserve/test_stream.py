"""One stream without a connection: what it takes, what it holds, and how it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

from tritonclient.grpc.service_pb2 import ModelInferRequest, ModelStreamInferResponse

from router.config import Limits
from router.errors import protocol_violated
from router.model import Call
from router.transport.kserve.catalogue import Catalogue
from router.transport.kserve.stream import InferStream
from router.transport.kserve.turns import Turns
from router.transport.requests import Unreadable
from tests.unit.router.transport.kserve.requests import tokens_of

NO_TURNS = cast(Turns, None)
"""For requests that are all refused."""


def open_stream(catalogue: Catalogue, most: int = 10) -> InferStream:
    return InferStream(Call("1"), NO_TURNS, catalogue, Limits(max_turns_per_stream=most))


async def take_all(stream: InferStream) -> list[ModelStreamInferResponse]:
    """All responses until the stream ends."""
    messages = []
    while (message := await stream.take()) is not None:
        messages.append(message)
    return messages


async def test_refusals_that_nobody_reads_end_the_stream(catalogue: Catalogue) -> None:
    """A caller may send bad requests without end: what waits to be sent stays bounded, and then it is told why."""
    taken = 0

    async def endless() -> AsyncIterator[ModelInferRequest]:
        nonlocal taken
        while True:
            taken += 1
            yield ModelInferRequest(id=str(taken))

    stream = open_stream(catalogue)
    await stream.read(endless())
    assert taken < 25
    assert stream.fault is not None
    assert stream.fault.reason == "READER_TOO_SLOW"
    assert len(await take_all(stream)) == taken - 1


async def test_a_message_that_cannot_be_read_ends_the_stream(catalogue: Catalogue) -> None:
    """Behind what was said before."""

    async def broken() -> AsyncIterator[Any]:
        yield ModelInferRequest(id="1")
        yield Unreadable(protocol_violated("MESSAGE_UNREADABLE", "message", "not this protobuf type"))

    stream = open_stream(catalogue)
    await stream.read(broken())
    assert stream.fault is not None
    assert stream.fault.reason == "MESSAGE_UNREADABLE"
    assert [message.infer_response.id for message in await take_all(stream)] == ["1"]


async def test_a_fault_of_ours_ends_the_stream_as_internal(catalogue: Catalogue) -> None:
    """Here there is nothing that could run a turn."""

    async def good() -> AsyncIterator[ModelInferRequest]:
        yield tokens_of(model_name="first")

    stream = open_stream(catalogue)
    await stream.read(good())
    assert stream.fault is not None
    assert stream.fault.reason == "INTERNAL"


async def test_half_closing_ends_a_stream_that_has_nothing_to_do(catalogue: Catalogue) -> None:
    """At once, with what is still to be said."""

    async def nothing() -> AsyncIterator[ModelInferRequest]:
        return
        yield

    stream = open_stream(catalogue)
    await stream.read(nothing())
    assert await take_all(stream) == []
    assert stream.fault is None

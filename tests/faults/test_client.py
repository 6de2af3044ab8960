"""The Python client: only a turn that the router finished counts as an answer, and what a program gives up is given up in the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from tidegate import Client, StreamLost, TidegateError, Turn, user
from tidegate.errors import from_rpc_error
from tidegate.v1.chat_service_pb2 import ConverseRequest, ConverseResponse
from tidegate.v1.chat_service_pb2_grpc import ChatServiceServicer, add_ChatServiceServicer_to_server
from tidegate.v1.event_pb2 import FINISH_REASON_UNSPECIFIED, Event, TextDelta

from tests.bench.serving import run_server
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.worker import End, Finish, Worker

HALF_AN_ANSWER = [Event(turn=1, sequence=2, text_delta=TextDelta(text="half an ans"))]


class CuttingRouter(ChatServiceServicer):
    """Sends these events for the first turn, then ends the stream with OK."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = events

    async def Converse(self, requests: AsyncIterator[ConverseRequest], context: Any) -> AsyncIterator[ConverseResponse]:
        async for request in requests:
            if request.HasField("start"):
                yield ConverseResponse(events=self._events)
                return


@asynccontextmanager
async def connect_to(service: ChatServiceServicer) -> AsyncIterator[Client]:
    async with run_server(add_ChatServiceServicer_to_server, service) as address, Client(address) as client:
        yield client


async def read_failure(turn: Turn[str]) -> tuple[str, TidegateError]:
    """The text that came before the turn's failure, and the failure."""
    text = ""
    with pytest.raises(TidegateError) as caught:
        async for event in turn:
            text += event.text_delta.text
    return text, caught.value


async def test_a_stream_that_ends_early_is_no_answer(chatml: Path) -> None:
    """A stream that ends with OK in the middle of a turn raises StreamLost; the turn has no finish reason; the next is asked anew."""
    async with connect_to(CuttingRouter(HALF_AN_ANSWER)) as client, client.session() as session:
        turn = await session.start(user("hi"))
        text, error = await read_failure(turn)
        assert isinstance(error, StreamLost)
        assert (text, error.code) == ("half an ans", grpc.StatusCode.UNAVAILABLE)
        assert turn.finish_reason == FINISH_REASON_UNSPECIFIED
        text, error = await read_failure(await session.start(user("hi")))
        assert (text, error.reason) == ("half an ans", "STREAM_LOST")


async def test_a_router_that_is_not_there_is_an_error_of_ours() -> None:
    """Connecting to nothing raises the client's own error class, as unavailable, and not an exception of the library."""
    async with Client("127.0.0.1:1") as client:
        with pytest.raises(TidegateError) as caught:
            async with client.session() as session:
                await (await session.start(user("hi"))).text()
    assert caught.value.code == grpc.StatusCode.UNAVAILABLE


async def test_a_failure_after_text_is_no_short_answer(chatml: Path) -> None:
    """A turn that fails after some text raises with the router's reason, whichever way it is read; its usage is known."""
    async with run_bench(chatml, Worker(chatml, ["a", End(Finish.FAILED)])) as router, router.client() as client:
        async with client.session() as session:
            turn = await session.start(ask())
            text, error = await read_failure(turn)
            assert (text, error.reason) == ("a", "ENGINE_FAILED")
            assert error.request_id
            assert turn.usage is not None
            assert turn.usage.completion_tokens == 1
            with pytest.raises(TidegateError, match="ENGINE_FAILED"):
                await (await session.start(ask())).text()


async def test_a_program_that_stops_waiting_cancels_its_turn(chatml: Path) -> None:
    """When the task that reads a turn is cancelled, by a timeout for example, the turn leaves the engine and the stream lives."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens)
    async with run_bench(chatml, worker) as router, router.client() as client, client.session() as session:
        turn = await session.start(ask(), max_output_tokens=2000)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(turn.text(), 0.1)
        await until(lambda: worker.engine.cancelled == 1, within_s=1.0)
        assert await (await session.start(ask(), max_output_tokens=3)).text() == "aaa"


async def test_turns_that_nobody_reads_end_with_their_session(chatml: Path) -> None:
    """Turns that were started and never iterated are cancelled when the session is left, by an exception too."""
    worker = Worker(chatml, lambda request: ["a"] * request.max_new_tokens)
    async with run_bench(chatml, worker) as router, router.client() as client:
        with pytest.raises(KeyError, match="a fault of the program"):
            async with client.session() as session:
                turns = [await session.start(ask(), max_output_tokens=2000) for _ in range(3)]
                await until(lambda: worker.calls == len(turns))
                raise KeyError("a fault of the program")
        await until(lambda: worker.engine.cancelled == 3, within_s=1.0)


def test_a_status_that_crossed_with_a_write_is_a_lost_stream() -> None:
    """What grpc.aio tells when it lost the router's status to a failed write does not look like a fault of the router."""
    lost = grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(), details="Internal error from Core")
    error = from_rpc_error(lost, opened=True)
    assert isinstance(error, StreamLost)
    assert error.code == grpc.StatusCode.UNAVAILABLE

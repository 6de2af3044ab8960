"""A router whose side of each RPC a test writes, message for message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from tidegate import Client
from tidegate.v1.chat_service_pb2 import ConverseRequest, ConverseResponse
from tidegate.v1.chat_service_pb2_grpc import ChatServiceServicer, add_ChatServiceServicer_to_server
from tidegate.v1.event_pb2 import FINISH_REASON_STOP, Event, Failed, Finished, GoAway, Ready, Started, TextDelta

from tests.bench.serving import run_server


class Rpc:
    """One RPC: what the caller says, and what is known of it."""

    def __init__(self, requests: AsyncIterator[ConverseRequest], context: Any) -> None:
        self.metadata = dict(context.invocation_metadata())
        self.peer: str = context.peer()
        self._requests = requests
        self._context = context

    async def hear(self, kind: str) -> Any:
        """The next message, which must be of this kind."""
        message = await anext(self._requests)
        assert message.WhichOneof("message") == kind
        return getattr(message, kind)

    async def hear_half_close(self) -> list[str]:
        """The kinds of messages until then: no other may come than the one that says goodbye."""
        kinds = [str(message.WhichOneof("message")) async for message in self._requests]
        assert kinds in ([], ["leave"])
        return kinds

    async def break_off(self) -> None:
        """Ends the RPC as a broken connection does."""
        await self._context.abort(grpc.StatusCode.UNAVAILABLE, "the wire was cut")

    async def fail(self, status: Status) -> None:
        """Ends the RPC with a router's words."""
        code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
        await self._context.abort(code, status.message, (("grpc-status-details-bin", status.SerializeToString()),))


Side = Callable[[Rpc], AsyncIterator[ConverseResponse]]


class ScriptedRouter(ChatServiceServicer):
    """Plays one side after the other; a further RPC fails."""

    def __init__(self, *sides: Side) -> None:
        self.rpcs: list[Rpc] = []
        self._sides = list(sides)

    async def Converse(self, requests: AsyncIterator[ConverseRequest], context: Any) -> AsyncIterator[ConverseResponse]:
        self.rpcs.append(Rpc(requests, context))
        side = self._sides.pop(0)
        async for frame in side(self.rpcs[-1]):
            yield frame


def serve(router: ChatServiceServicer) -> AbstractAsyncContextManager[str]:
    """Serves; gives the address."""
    return run_server(add_ChatServiceServicer_to_server, router)


@asynccontextmanager
async def connect(router: ChatServiceServicer, **options: Any) -> AsyncIterator[Client]:
    """A client of that router."""
    async with serve(router) as address, Client(address, **options) as client:
        yield client


def frame(sequence: int, *events: Event) -> ConverseResponse:
    """A numbered frame."""
    return ConverseResponse(sequence=sequence, events=events)


def ready(sequence: int = 1, resume_for_s: int = 5) -> ConverseResponse:
    """The answer to `setup`."""
    return frame(sequence, Event(ready=Ready(stream_id="the stream", resume_for=Duration(seconds=resume_for_s) if resume_for_s else None)))


def started(turn: int = 1) -> Event:
    return Event(turn=turn, started=Started())


def text(words: str, turn: int = 1) -> Event:
    return Event(turn=turn, text_delta=TextDelta(text=words))


def finished(turn: int = 1) -> Event:
    return Event(turn=turn, finished=Finished(finish_reason=FINISH_REASON_STOP))


def go_away() -> Event:
    return Event(go_away=GoAway())


def failed(status: Status, turn: int = 1) -> Event:
    return Event(turn=turn, failed=Failed(status=status))


def status_of(code: grpc.StatusCode, reason: str, retry_after: Duration | None = None) -> Status:
    """A status in a router's words."""
    status = Status(code=code.value[0], message="words")
    status.details.add().Pack(ErrorInfo(reason=reason, domain="tidegate.dev"))
    if retry_after is not None:
        status.details.add().Pack(RetryInfo(retry_delay=retry_after))
    return status

"""Turns over one Converse stream.

    async with Client("127.0.0.1:8500") as client, client.session() as session:
        turn = await session.start(user("What is the capital of France?"))
        async for event in turn:
            print(event.text_delta.text, end="")

A turn is an async iterable of events. Leaving the loop over it early cancels it; leaving a session cancels the turns that still run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import grpc
from google.rpc.status_pb2 import Status

from tidegate.errors import StreamLost, TidegateError, from_rpc_error, stream_lost
from tidegate.v1 import chat_service_pb2 as api
from tidegate.v1.chat_service_pb2_grpc import ChatServiceStub
from tidegate.v1.event_pb2 import Event, FinishReason, Started, Usage
from tidegate.v1.turn_pb2 import ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_USER, Message, ResponseFormat, Sampling, TurnSpec

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),  # a turn costs money; what is tried again is decided where the reason is known
)


def user(text: str) -> Message:
    """A user's message."""
    return Message(role=ROLE_USER, content=text)


def system(text: str) -> Message:
    """Instructions to the model."""
    return Message(role=ROLE_SYSTEM, content=text)


def assistant(text: str) -> Message:
    """An earlier answer of the model."""
    return Message(role=ROLE_ASSISTANT, content=text)


class Client:
    """A connection to a router, `host:port`. `headers` are sent with every call, `traceparent` for example."""

    def __init__(self, target: str, *, headers: Mapping[str, str] | None = None) -> None:
        self._headers = dict(headers or {})
        self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        self.stub = ChatServiceStub(self._channel)

    def session(self, *, model: str = "", sampling: Sampling | None = None, headers: Mapping[str, str] | None = None) -> Session:
        """A Converse stream, to be used with `async with`; model and sampling are defaults for its turns."""
        setup = api.Setup(model=model, sampling=sampling)
        return Session(self.stub.Converse(metadata=tuple((self._headers | dict(headers or {})).items())), setup)

    async def close(self) -> None:
        """Ends everything on this connection."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


class Turn:
    """One turn. Iterate it once; `usage`, `started` and `finish_reason` are filled as their events pass."""

    def __init__(self, session: Session, number: int) -> None:
        self.number = number
        self.started: Started | None = None
        self.usage: Usage | None = None
        self.finish_reason: FinishReason = FinishReason.FINISH_REASON_UNSPECIFIED
        self._session = session
        self._ended = False
        self._events: asyncio.Queue[Event | TidegateError] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """The turn's events to the terminal one. Raises TidegateError when it failed, StreamLost when the stream ended first."""
        try:
            while True:
                event = await self._events.get()
                if isinstance(event, TidegateError):
                    raise event
                yield event
                if event.WhichOneof("event") == "finished":
                    return
        finally:
            if not self._ended:
                with suppress(TidegateError):
                    await self.cancel()

    async def text(self) -> str:
        """Waits for the whole answer. Raises as iterating does."""
        return "".join([event.text_delta.text async for event in self if event.HasField("text_delta")])

    async def cancel(self) -> None:
        """Asks the router to end the turn; `finished` CANCELLED follows unless it ends first."""
        await self._session.send(api.ConverseRequest(cancel=api.CancelTurn(turn=self.number)))

    def take(self, event: Event) -> None:
        """Called by the session with each event of this turn."""
        match event.WhichOneof("event"):
            case "started":
                self.started = event.started
            case "usage":
                self.usage = event.usage
            case "finished":
                self._ended = True
                self.finish_reason = event.finished.finish_reason
            case "failed":
                self.fail(TidegateError(event.failed.status))
                return
        self._events.put_nowait(event)

    def fail(self, error: TidegateError) -> None:
        """Ends the iteration with an error."""
        self._ended = True
        self._events.put_nowait(error)


class Session:
    """A Converse stream with its turns."""

    def __init__(self, call: Any, setup: api.Setup) -> None:
        self.going_away = False
        self._call = call
        self._setup = setup
        self._turns: dict[int, Turn] = {}
        self._last_number = 0
        self._reader: asyncio.Task[None] | None = None
        self._sending = asyncio.Lock()
        self._ended: TidegateError | None = None

    async def start(
        self,
        *messages: Message,
        model: str = "",
        sampling: Sampling | None = None,
        max_output_tokens: int | None = None,
        stop: Iterable[str] = (),
        response_format: ResponseFormat | None = None,
        logprobs: bool = False,
    ) -> Turn:
        """Starts a turn. Raises TidegateError when the stream has ended."""
        spec = TurnSpec(
            model=model,
            messages=messages,
            sampling=sampling,
            max_output_tokens=max_output_tokens,
            stop=stop,
            response_format=response_format,
            logprobs=logprobs,
        )
        self._last_number += 1
        turn = self._turns[self._last_number] = Turn(self, self._last_number)
        await self.send(api.ConverseRequest(start=api.StartTurn(turn=turn.number, spec=spec)))
        return turn

    async def send(self, message: api.ConverseRequest) -> None:
        """Sends one message. Raises TidegateError when the stream has ended."""
        if self._ended is not None:
            raise self._ended
        async with self._sending:
            try:
                await self._call.write(message)
            except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
                raise await self._failure() from None

    async def half_close(self) -> None:
        """Says that no more turns come; the stream ends when the running ones have."""
        async with self._sending:
            await self._call.done_writing()

    async def __aenter__(self) -> Self:
        self._reader = asyncio.create_task(self._read())
        await self.send(api.ConverseRequest(setup=self._setup))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Half-closes when all turns have ended, else cancels the stream."""
        if self._turns or kind is not None or self._ended is not None:
            self._call.cancel()
        else:
            await self._call.done_writing()
        if self._reader is not None:
            await asyncio.wait({self._reader})

    async def _read(self) -> None:
        try:
            async for frame in self._call:
                for event in frame.events:
                    self._dispatch(event)
            self._end(stream_lost("the stream ended before the turn"))
        except grpc.aio.AioRpcError as error:
            self._end(from_rpc_error(error))
        except asyncio.CancelledError:
            self._end(StreamLost(Status(code=grpc.StatusCode.CANCELLED.value[0], message="the stream was cancelled")))

    def _dispatch(self, event: Event) -> None:
        turn = self._turns.get(event.turn)
        if turn is not None:
            turn.take(event)
            if event.WhichOneof("event") in ("finished", "failed"):
                del self._turns[event.turn]
        elif event.WhichOneof("event") == "go_away":
            self.going_away = True

    def _end(self, error: TidegateError) -> None:
        self._ended = error
        for turn in self._turns.values():
            turn.fail(error)
        self._turns.clear()

    async def _failure(self) -> TidegateError:
        """Why a write found the stream ended: what its reader was told."""
        if self._reader is not None:
            await asyncio.wait({self._reader})
        return self._ended or stream_lost("the stream has ended")

"""Tidegate's own API: turns multiplexed over one Converse stream, or over many.

The stream's reader takes a frame's moment before parsing it and feeds each turn's record; no queue and no task lies between. The Python
client hands events over through a queue per turn, which would be timed too, so only its stubs and errors are used here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
from tidegate import TidegateError
from tidegate.credentials import Credentials
from tidegate.errors import from_rpc_error
from tidegate.v1.chat_service_pb2 import CancelTurn, ConverseRequest, ConverseResponse, Setup, StartTurn
from tidegate.v1.event_pb2 import Event
from tidegate.v1.turn_pb2 import ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_USER, Message, TurnSpec

from loadtest.record import Outcome, Record, Usage
from loadtest.request import Request
from loadtest.targets.stamps import Stamped, stamp

METHOD = "/tidegate.v1.ChatService/Converse"
ROLES = {"system": ROLE_SYSTEM, "user": ROLE_USER, "assistant": ROLE_ASSISTANT}

Headers = tuple[tuple[str, str], ...]
PLAINTEXT = Credentials()

_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # each stream gets a connection of its own, as callers in different processes would have
)


@dataclass(frozen=True, slots=True)
class ConverseOptions:
    """`{tenant}` in a header's value stands for the request's tenant; every tenant gets `streams` streams then."""

    address: str
    streams: int = 1
    model: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    exact_length: bool = False
    """Whether answers must have as many tokens as asked for, whatever the model would say."""
    credentials: Credentials = PLAINTEXT


class Stream:
    """One Converse stream, on a connection of its own, and the turns that run on it."""

    def __init__(self, options: ConverseOptions, headers: Headers) -> None:
        self._options = options
        self._channel = options.credentials.open_channel(options.address, _CHANNEL_OPTIONS)
        open_call: Any = self._channel.stream_stream(METHOD, ConverseRequest.SerializeToString, stamp(ConverseResponse.FromString))
        self._call = open_call(metadata=headers)
        self._turns: dict[int, tuple[Record, asyncio.Event]] = {}
        self._last_turn = 0
        self._sending = asyncio.Lock()
        self._is_set_up = False
        self._end = ""
        self._reader = asyncio.create_task(self._read())

    @property
    def running(self) -> int:
        """Turns that have not ended."""
        return len(self._turns)

    @property
    def is_open(self) -> bool:
        """Whether turns can be started on it."""
        return not self._end

    async def set_up(self) -> None:
        """Connects ahead of the first turn, whose time it would cost."""
        async with self._sending:
            await self._write_setup()

    async def run(self, request: Request, record: Record) -> None:
        """One turn, to its end."""
        ended = asyncio.Event()
        number = await self._start(request, record, ended)
        try:
            await ended.wait()
        except asyncio.CancelledError:
            if self._turns.pop(number, None):
                async with self._sending:
                    await self._write(ConverseRequest(cancel=CancelTurn(turn=number)))
            raise

    async def close(self) -> None:
        """Ends the stream, and with it the turns that run."""
        await self._channel.close()
        await asyncio.wait({self._reader})

    async def _start(self, request: Request, record: Record, ended: asyncio.Event) -> int:
        spec = turn_spec(request, exact_length=self._options.exact_length)
        async with self._sending:
            await self._write_setup()
            self._last_turn += 1
            number = self._last_turn
            self._turns[number] = record, ended
            record.send(time.perf_counter())
            await self._write(ConverseRequest(start=StartTurn(turn=number, spec=spec)))
        if self._end:
            self._fail_all(self._end)
        return number

    async def _write_setup(self) -> None:
        if not self._is_set_up:
            self._is_set_up = True
            await self._write(ConverseRequest(setup=Setup(model=self._options.model)))

    async def _write(self, message: ConverseRequest) -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the reader learns why
            await self._call.write(message)

    async def _read(self) -> None:
        reason, opened = "STREAM_ENDED", False
        try:
            async for frame in self._call:
                opened = True
                self._take(frame)
        except grpc.aio.AioRpcError as error:
            reason = reason_of(from_rpc_error(error, opened=opened))
        finally:
            self._end = reason
            self._fail_all(reason)

    def _take(self, frame: Stamped[ConverseResponse]) -> None:
        for event in frame.message.events:
            turn = self._turns.get(event.turn)
            if turn is not None:
                take_event(turn[0], event, frame.at)
                if turn[0].outcome is not Outcome.RUNNING:
                    del self._turns[event.turn]
                    turn[1].set()

    def _fail_all(self, reason: str) -> None:
        now = time.perf_counter()
        for record, ended in self._turns.values():
            record.fail(now, reason)
            ended.set()
        self._turns.clear()


class ConverseTarget:
    """A router."""

    def __init__(self, options: ConverseOptions) -> None:
        self._options = options
        self._pools: dict[Headers, list[Stream]] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, options: ConverseOptions) -> AsyncIterator[ConverseTarget]:
        """Connects; leaving ends the streams."""
        target = cls(options)
        try:
            await asyncio.gather(*(stream.set_up() for stream in await target._pool("")))
            yield target
        finally:
            for stream in (stream for pool in target._pools.values() for stream in pool):
                await stream.close()

    async def run(self, request: Request, record: Record) -> None:
        pool = await self._pool(request.tenant)
        await min(pool, key=lambda stream: stream.running).run(request, record)

    async def _pool(self, tenant: str) -> list[Stream]:
        """The streams for a tenant's headers; one that has ended is replaced, as a caller would."""
        headers = tuple((name, value.format(tenant=tenant)) for name, value in self._options.headers.items())
        pool = self._pools.setdefault(headers, [])
        pool += [Stream(self._options, headers) for _ in range(self._options.streams - len(pool))]
        for at, stream in enumerate(pool):
            if not stream.is_open:
                pool[at] = Stream(self._options, headers)
                await stream.close()
        return pool


def turn_spec(request: Request, *, exact_length: bool) -> TurnSpec:
    """A request as the API has it."""
    messages = [Message(role=ROLES[message.role], content=message.content) for message in request.messages]
    spec = TurnSpec(messages=messages, max_output_tokens=request.output_tokens)
    if exact_length:
        spec.min_output_tokens = request.output_tokens
    return spec


def take_event(record: Record, event: Event, at: float) -> None:
    """One event of a turn into its record."""
    match event.WhichOneof("event"):
        case "text_delta":
            record.arrive(at, event.text_delta.text)
        case "tool_call_delta":
            record.arrive(at)
        case "queued":
            record.queue(at)
        case "started":
            record.start(at, event.started.worker, event.started.cached_tokens)
        case "usage":
            usage = event.usage
            record.usage = Usage(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
        case "finished":
            record.complete(at)
        case "failed":
            error = TidegateError(event.failed.status)
            record.retry_after_s = error.retry_after or 0.0
            shed = error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
            record.fail(at, reason_of(error), outcome=Outcome.SHED if shed else Outcome.FAILED)


def reason_of(error: TidegateError) -> str:
    """The stable reason, or the status code where the failure is not a router's."""
    return error.reason or error.code.name

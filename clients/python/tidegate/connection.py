"""The way to a router: one channel, and a new one beside it when the router at its end goes away."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc

from tidegate.credentials import Credentials
from tidegate.v1.chat_service_pb2_grpc import ChatServiceStub

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),  # a turn costs money; what is tried again is decided where the reason is known
    ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection, which may lead to another router
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.keepalive_time_ms", 20_000),  # routers allow one ping in ten seconds
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)


@dataclass(eq=False, slots=True)
class Channel:
    """A channel, its stub, and how many streams use it."""

    channel: grpc.aio.Channel
    stub: ChatServiceStub = field(init=False)
    streams: int = 0
    retired: bool = False

    def __post_init__(self) -> None:
        self.stub = ChatServiceStub(self.channel)


class Closing(Protocol):
    """What must be closed before its connection is."""

    async def close(self) -> None: ...


class Connection:
    """Gives streams their channel. Nothing is opened before it is needed. `streams` are those that are not over."""

    def __init__(self, target: str, credentials: Credentials) -> None:
        self._target = target
        self._credentials = credentials
        self._current: Channel | None = None
        self._plain: Channel | None = None
        self.streams: set[Closing] = set()
        self._open: set[Channel] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def stub(self) -> ChatServiceStub:
        """A stub on a channel of its own, which stays open: whose calls use it is not known here."""
        if self._plain is None:
            self._plain = self._open_channel()
        return self._plain.stub

    def metadata(self, headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """What an RPC sends along: who calls, and these headers. Raises what the caller's token function raises."""
        return tuple((self._credentials.headers() | dict(headers)).items())

    @contextmanager
    def stream(self) -> Iterator[Channel]:
        """The channel for one RPC. It stays open as long as that needs it."""
        if self._current is None:
            self._current = self._open_channel()
        channel = self._current
        channel.streams += 1
        try:
            yield channel
        finally:
            channel.streams -= 1
            self._close_if_done(channel)

    def retire(self, channel: Channel) -> None:
        """The router at this channel's end is going: new streams get another, this one is closed when its streams have ended."""
        channel.retired = True
        if self._current is channel:
            self._current = None
        self._close_if_done(channel)

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs what nobody waits for, to its end or to that of the connection."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Closes all streams, then all channels."""
        await asyncio.gather(*(stream.close() for stream in self.streams))
        if self._tasks:
            await asyncio.wait(self._tasks)
        channels, self._current, self._plain = list(self._open), None, None
        self._open.clear()
        for channel in channels:
            await channel.channel.close()

    def _close_if_done(self, channel: Channel) -> None:
        if channel.retired and not channel.streams and channel in self._open:
            self._open.discard(channel)
            self.in_background(channel.channel.close())

    def _open_channel(self) -> Channel:
        channel = Channel(self._credentials.open_channel(self._target, _OPTIONS))
        self._open.add(channel)
        return channel

    def __del__(self) -> None:
        if self._open:
            warnings.warn("a client was not closed", ResourceWarning, stacklevel=2, source=self)

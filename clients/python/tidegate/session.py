"""A session: many turns over one stream, and over the next one when that stream ends or its router goes away."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from tidegate.attempt import Attempt
from tidegate.connection import Connection
from tidegate.errors import stream_lost
from tidegate.forms import Form, choose_form
from tidegate.options import TurnOptions, build_spec
from tidegate.retry import Budget
from tidegate.stream import Stream
from tidegate.turn import Asking, Turn
from tidegate.v1.chat_service_pb2 import Setup
from tidegate.v1.turn_pb2 import Message, TurnSpec

T = TypeVar("T")


class Session:
    """To be used with `async with`: leaving it cancels the turns that still run."""

    def __init__(self, connection: Connection, setup: Setup, headers: Mapping[str, str], retries: int, budget: Budget) -> None:
        self._connection = connection
        self._setup = setup
        self._headers = headers
        self._retries = retries
        self._budget = budget
        self._streams: list[Stream] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    @property
    def going_away(self) -> bool:
        """Whether the newest stream's router has said that it goes. The next turn is started on another stream."""
        return bool(self._streams) and self._streams[-1].going_away

    @overload
    async def start(self, *messages: Message | str, into: type[T], **options: Unpack[TurnOptions]) -> Turn[T]: ...
    @overload
    async def start(self, *messages: Message | str, into: None = None, **options: Unpack[TurnOptions]) -> Turn[str]: ...
    async def start(self, *messages: Message | str, into: Any = None, **options: Unpack[TurnOptions]) -> Turn[Any]:
        """Starts a turn. What is wrong with it is raised where it is read."""
        form = choose_form(into)
        turn = self.ask(build_spec(messages, options, form.response_format), form, options.get("deadline"))
        turn.begin()
        return turn

    def ask(self, spec: TurnSpec, form: Form[T], deadline_s: float | None, *, alone: bool = False) -> Turn[T]:
        """A turn that is not sent yet; `alone`: the session has no other, and ends with it."""
        leave = self.close_soon if alone else _stay
        return Turn(Asking(partial(self._begin, spec), leave, deadline_s, self._retries, self._budget), form)

    async def close(self) -> None:
        """Cancels what runs and ends the streams."""
        await asyncio.gather(*(stream.close() for stream in self._take_streams()))

    def close_soon(self) -> None:
        """Closes without waiting for that."""
        for stream in self._take_streams():
            stream.abandon()

    async def __aenter__(self) -> Self:
        self._open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def _take_streams(self) -> list[Stream]:
        streams, self._streams, self._closed = self._streams, [], True
        return streams

    def _begin(self, spec: TurnSpec) -> Attempt:
        if self._closed:  # while a turn of it waited for its next try
            raise stream_lost("the session was closed")
        if not self._streams or not self._streams[-1].takes_turns:
            self._open()
        return self._streams[-1].start(spec)

    def _open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._streams = [stream for stream in self._streams if not stream.is_over]
        self._streams.append(Stream(self._connection, self._setup, self._headers))

    def __del__(self) -> None:
        left = [stream for stream in self._streams if not stream.is_over]
        if not left or self._loop is None or self._loop.is_closed():
            return
        warnings.warn("a session was not closed; its turns are cancelled", ResourceWarning, stacklevel=2, source=self)
        for stream in left:
            self._loop.call_soon_threadsafe(stream.abandon)


def _stay() -> None:
    """A session goes on when one of its turns has ended."""

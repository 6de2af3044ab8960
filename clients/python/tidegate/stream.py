"""One Converse stream, which may outlive the connection that it began on.

Frames are numbered. When a connection breaks and the router keeps the stream for resumption, a new RPC names the stream and the last frame
that arrived, and the router sends what came after; a frame that arrives twice is dropped. The attempts are numbered, so that one that is
late on its way does not take the stream from a newer one. What was said to the router may have been lost
too: after a break, starts of turns of which nothing was heard, and cancels, are said again, and the router ignores those that it knows.

Nothing here waits for the network but the stream's own task, so a turn can be cancelled from anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import grpc

from tidegate.attempt import Attempt
from tidegate.connection import Channel, Connection
from tidegate.errors import TidegateError, from_rpc_error, stream_lost
from tidegate.v1.chat_service_pb2 import CancelTurn, ConverseRequest, ConverseResponse, Leave, Resume, Setup, StartTurn
from tidegate.v1.event_pb2 import Event
from tidegate.v1.turn_pb2 import TurnSpec

CLOSING_S = 1.0
"""Time that a stream which is left may take to end by itself."""

REFUSAL_S = 1.0
"""Time that a router takes at most to refuse a stream."""

_PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.5)
_ELSEWHERE = ("DRAINING", "RESUME_UNAVAILABLE")
"""What a router says that does not take a stream when another one may."""
_NOT_NOW = ("STREAM_LOST", "UNREACHABLE", *_ELSEWHERE)
_REFUSALS = ("UNREACHABLE", *_ELSEWHERE, "STREAM_UNKNOWN", "STREAM_TAKEN", "RESUME_GAP")

Outgoing = asyncio.Queue[ConverseRequest | None]


class Stream:
    """A stream that runs from its making to `close`."""

    def __init__(self, connection: Connection, setup: Setup, headers: Mapping[str, str]) -> None:
        self.going_away = False
        self._connection = connection
        self._headers = headers
        self._attempts: dict[int, Attempt] = {}
        self._last_number = 0
        self._outgoing: Outgoing | None = None
        self._stream_id = ""
        self._arrived = 0
        self._resume_for_s = 0.0
        self._outlives_rpc = setup.HasField("resume_for")  # until `ready` tells
        self._resumptions = 0
        self._lost_at: float | None = None
        self._failures = 0
        self._closing = False
        self._error: Exception | None = stream_lost("the stream was closed")
        self._task = asyncio.ensure_future(self._run(setup))
        self._task.add_done_callback(lambda _: self._end())  # a task that is cancelled before it begins has no `finally`
        connection.streams.add(self)

    @property
    def takes_turns(self) -> bool:
        """Whether turns can be started on it."""
        return not (self.going_away or self._closing or self._task.done())

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._task.done()

    def start(self, spec: TurnSpec) -> Attempt:
        """Starts a turn."""
        self._last_number += 1
        attempt = self._attempts[self._last_number] = Attempt(self._last_number, spec, self._post_cancel)
        if self._outgoing is not None:
            self._outgoing.put_nowait(_start(attempt))
        return attempt

    async def close(self) -> None:
        """Ends the stream and cancels the turns that still run on it."""
        self._closing = True
        running = bool(self._attempts)
        for attempt in list(self._attempts.values()):
            attempt.cancel()
        if self._outgoing is not None and (self._outlives_rpc or not running):  # else the RPC's end cancels its turns, at once
            if self._outlives_rpc:
                self._outgoing.put_nowait(ConverseRequest(leave=Leave()))
            self._outgoing.put_nowait(None)
            await asyncio.wait({self._task}, timeout=CLOSING_S)
        self._task.cancel()
        await asyncio.wait({self._task})

    def abandon(self) -> None:
        """Closes it when nobody is left to wait for that."""
        if not self._task.done():
            self._connection.in_background(self.close())

    async def _run(self, setup: Setup) -> None:
        """The stream's task: one RPC after the other, until one ends the stream."""
        try:
            error = await self._serve(setup)
            while self._may_resume(error):
                await asyncio.sleep(_PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)])
                self._failures += 1
                self._resumptions += 1
                wanted = Resume(stream_id=self._stream_id, after_sequence=self._arrived, attempt=self._resumptions)
                error = await self._serve(Setup(resume=wanted))
            self._error = error
        except Exception as fault:  # of the caller's token function, say: its turns raise it
            self._error = fault

    async def _serve(self, setup: Setup) -> TidegateError | None:
        """One RPC, to its end: None when that was regular."""
        outgoing = self._outgoing = self._say_what_was_said(setup)
        with self._connection.stream() as channel:
            call = channel.stub.Converse(_drain(outgoing), metadata=self._connection.metadata(self._headers))
            try:
                async for frame in call:
                    self._take(frame, channel)
                return None
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.INTERNAL and not self._stream_id:
                    error = await self._ask_why(channel) or error
                told = from_rpc_error(error, opened=self._lost_at is None and bool(self._stream_id))
                if told.reason in _ELSEWHERE:
                    self._connection.retire(channel)
                return told
            finally:
                call.cancel()
                self._outgoing = None
                outgoing.put_nowait(None)  # a call that is over leaves its reader of requests alone

    async def _ask_why(self, channel: Channel) -> grpc.aio.AioRpcError | None:
        """grpc.aio loses a refusal that crosses with a write, and says INTERNAL: calls again and writes nothing, to hear it."""
        silent: Outgoing = asyncio.Queue()
        call = channel.stub.Converse(_drain(silent), metadata=self._connection.metadata(self._headers))
        ended = asyncio.ensure_future(call.code())
        try:
            await asyncio.wait({ended}, timeout=REFUSAL_S)
            if not ended.done() or ended.result() is grpc.StatusCode.OK:
                return None
            return grpc.aio.AioRpcError(ended.result(), await call.initial_metadata(), await call.trailing_metadata(), await call.details())
        finally:
            call.cancel()
            ended.cancel()
            silent.put_nowait(None)

    def _say_what_was_said(self, setup: Setup) -> Outgoing:
        """What a new connection is told first."""
        outgoing: Outgoing = asyncio.Queue()
        outgoing.put_nowait(ConverseRequest(setup=setup))
        for attempt in self._attempts.values():
            if not (attempt.seen or attempt.ended):
                outgoing.put_nowait(_start(attempt))
            if attempt.cancelled:
                outgoing.put_nowait(_cancel(attempt.number))
        return outgoing

    def _take(self, frame: ConverseResponse, channel: Channel) -> None:
        self._failures, self._lost_at = 0, None
        if frame.sequence and frame.sequence <= self._arrived:
            return
        self._arrived = frame.sequence or self._arrived
        for event in frame.events:
            if event.turn:
                self._take_turn_event(event, channel)
            else:
                self._take_stream_event(event, channel)

    def _take_turn_event(self, event: Event, channel: Channel) -> None:
        attempt = self._attempts.get(event.turn)
        if attempt is None:
            return
        attempt.take(event)
        kind = event.WhichOneof("event")
        if kind in ("finished", "failed"):
            del self._attempts[event.turn]
        if kind == "failed" and TidegateError(event.failed.status).reason == "DRAINING":
            self._go_away(channel)

    def _take_stream_event(self, event: Event, channel: Channel) -> None:
        match event.WhichOneof("event"):
            case "ready":
                self._stream_id = event.ready.stream_id
                self._resume_for_s = event.ready.resume_for.ToTimedelta().total_seconds()
                self._outlives_rpc = self._resume_for_s > 0
            case "go_away":
                self._go_away(channel)

    def _go_away(self, channel: Channel) -> None:
        self.going_away = True
        self._connection.retire(channel)

    def _may_resume(self, error: Exception | None) -> bool:
        """Whether a router keeps the stream still, as far as can be known here."""
        if self._closing or not isinstance(error, TidegateError) or error.reason not in _NOT_NOW:
            return False
        now = asyncio.get_running_loop().time()
        if self._lost_at is None:
            self._lost_at = now
        return now < self._lost_at + self._resume_for_s

    def _end(self) -> None:
        """Every turn that has not ended fails with the stream's error."""
        self._connection.streams.discard(self)
        for attempt in self._attempts.values():
            attempt.fail(self._error_for(attempt))
        self._attempts.clear()

    def _error_for(self, attempt: Attempt) -> Exception:
        error = self._error
        if error is None:
            return stream_lost("the stream ended before the turn", never_arrived=self.going_away and not attempt.seen)
        if self._stream_id and isinstance(error, TidegateError) and error.reason in _REFUSALS:
            return stream_lost(f"the connection broke, and the stream could not be taken up again: {error.reason}")
        return error

    def _post_cancel(self, number: int) -> None:
        if self._outgoing is not None:
            self._outgoing.put_nowait(_cancel(number))


def _start(attempt: Attempt) -> ConverseRequest:
    return ConverseRequest(start=StartTurn(turn=attempt.number, spec=attempt.spec))


def _cancel(number: int) -> ConverseRequest:
    return ConverseRequest(cancel=CancelTurn(turn=number))


async def _drain(outgoing: Outgoing) -> AsyncIterator[ConverseRequest]:
    """What an RPC sends, until its half-close."""
    while (message := await outgoing.get()) is not None:
        yield message

"""A caller that comes back: the bare stub, and the rules of resuming. What it has received is checked frame by frame."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from typing import Any

import grpc
from tidegate import TidegateError
from tidegate.errors import from_rpc_error
from tidegate.v1.chat_service_pb2 import ConverseRequest, Resume, Setup, StartTurn
from tidegate.v1.event_pb2 import FINISH_REASON_TOOL_CALLS, Event, Ready
from tidegate.v1.turn_pb2 import TurnSpec

from router.transport.outbox import seconds


async def end_of(call: Any) -> TidegateError | None:
    """What a call ends with, whatever frames come before; None is a good end."""
    try:
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error)
    return None


class ResumingCaller:
    """One stream over many connections. `texts` holds what came of each turn, `ended` the newest terminal events, `calls` the
    turns of tool calls by their ids."""

    def __init__(self, resume_for_s: float) -> None:
        self.ready: Ready | None = None
        self.sequence = 0
        self.connections = 0
        self.texts: defaultdict[int, str] = defaultdict(str)
        self.ended: dict[int, Event] = {}
        self.calls: dict[str, int] = {}
        self._resume_for_s = resume_for_s
        self.starts: dict[int, ConverseRequest] = {}
        self._events: defaultdict[int, int] = defaultdict(int)
        self.call: Any = None
        """The connection in force."""

    async def connect(self, stub: Any, **options: Any) -> None:
        """Opens the stream, or takes it up again; starts of which nothing has come are sent again."""
        self.connections += 1
        self.call = stub.Converse(**options)
        if self.ready is None:
            await self.send(ConverseRequest(setup=Setup(resume_for=seconds(self._resume_for_s))))
        else:
            resume = Resume(stream_id=self.ready.stream_id, after_sequence=self.sequence)
            await self.send(ConverseRequest(setup=Setup(resume=resume)))
        for turn, start in self.starts.items():
            if not self._events[turn]:
                await self.send(start)

    async def start(self, spec: TurnSpec) -> int:
        """Starts the next turn and gives its number."""
        turn = len(self.starts) + 1
        self.starts[turn] = ConverseRequest(start=StartTurn(turn=turn, spec=spec))
        await self.send(self.starts[turn])
        return turn

    async def send(self, request: ConverseRequest) -> None:
        """Sends a message on this connection; that it is lost is for `read` to find."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self.call.write(request)

    async def half_close(self) -> None:
        """No more input on this connection."""
        await self.call.done_writing()

    def cut(self) -> None:
        """Leaves this connection as it is."""
        self.call.cancel()

    async def read(self) -> bool:
        """Takes the next frame. False at the end of the connection; raises TidegateError when that was not a good one."""
        try:
            frame = await self.call.read()
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        if frame is grpc.aio.EOF:
            return False
        if [event.WhichOneof("event") for event in frame.events] == ["ready"] and self.ready is not None:
            assert (frame.sequence, frame.events[0].ready) == (self.sequence, self.ready)
            return True
        assert frame.sequence == self.sequence + 1
        self.sequence = frame.sequence
        for event in frame.events:
            self._take(event)
        return True

    async def read_until_ended(self, *turns: int) -> None:
        """Reads until these turns have."""
        while not set(turns) <= set(self.ended):
            assert await self.read(), "the stream ended before its turns"

    def _take(self, event: Event) -> None:
        self._events[event.turn] += 1
        assert event.sequence == self._events[event.turn]
        kind = event.WhichOneof("event")
        if kind == "ready":
            self.ready = event.ready
        elif kind == "text_delta":
            self.texts[event.turn] += event.text_delta.text
        elif kind == "tool_call_delta" and event.tool_call_delta.call_id:
            self.calls[event.tool_call_delta.call_id] = event.turn
        elif kind in ("finished", "failed"):
            before = self.ended.get(event.turn)
            assert before is None or before.finished.finish_reason == FINISH_REASON_TOOL_CALLS
            self.ended[event.turn] = event

"""A Converse stream spoken by hand, message by message, for what the client would not send."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from tidegate.errors import from_rpc_error
from tidegate.v1.chat_service_pb2 import CancelTurn, ConverseRequest, ConverseResponse, Setup, StartTurn, ToolResult, ToolResults
from tidegate.v1.chat_service_pb2_grpc import ChatServiceStub
from tidegate.v1.event_pb2 import Event
from tidegate.v1.turn_pb2 import ToolCall, TurnSpec

from tests.bench.waiting import until

ENDS = ("finished", "failed")


class Talk:
    """One open stream."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._events: defaultdict[int, list[Event]] = defaultdict(list)

    async def start(self, turn: int, spec: TurnSpec) -> None:
        await self._call.write(ConverseRequest(start=StartTurn(turn=turn, spec=spec)))

    async def cancel(self, turn: int) -> None:
        await self._call.write(ConverseRequest(cancel=CancelTurn(turn=turn)))

    async def give(self, turn: int, **results: str) -> None:
        """Sends results by call id."""
        answers = [ToolResult(call_id=id, content=content) for id, content in results.items()]
        await self._call.write(ConverseRequest(tool_results=ToolResults(turn=turn, results=answers)))

    async def half_close(self) -> None:
        await self._call.done_writing()

    async def end_of(self, turn: int, kinds: Sequence[str] = ENDS) -> list[Event]:
        """The turn's new events up to the next of these kinds; by default to its end.

        Raises TidegateError when the stream ends with an error first, and EOFError when it ends well.
        """
        while not (taken := _take(self._events[turn], kinds)):
            for event in (await self._read()).events:
                self._events[event.turn].append(event)
        return taken

    async def _read(self) -> ConverseResponse:
        try:
            frame = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        if isinstance(frame, ConverseResponse):
            return frame
        raise EOFError


def _take(events: list[Event], kinds: Sequence[str]) -> list[Event]:
    end = next((at for at, event in enumerate(events, 1) if event.WhichOneof("event") in kinds), 0)
    taken, events[:] = events[:end], events[end:]
    return taken


def calls_in(events: Sequence[Event]) -> list[ToolCall]:
    """The tool calls, joined from their pieces."""
    calls: list[ToolCall] = []
    for delta in (event.tool_call_delta for event in events if event.HasField("tool_call_delta")):
        if delta.index == len(calls):
            calls.append(ToolCall(id=delta.call_id, name=delta.name))
        calls[delta.index].arguments_json += delta.arguments_json
    return calls


def text_in(events: Sequence[Event]) -> str:
    """The text, joined from its pieces."""
    return "".join(event.text_delta.text for event in events)


@asynccontextmanager
async def talking(target: str) -> AsyncIterator[Talk]:
    """A stream to the router at `target` that is set up; cancelled when left."""
    async with grpc.aio.insecure_channel(target) as channel:
        call = ChatServiceStub(channel).Converse()  # type: ignore[no-untyped-call]
        await call.write(ConverseRequest(setup=Setup()))
        talk = Talk(call)
        await talk.end_of(0, ["ready"])
        try:
            yield talk
        finally:
            call.cancel()
            await until(call.done)

"""Calls that have one turn: its failure becomes the call's status, the rest its frames or its one response."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.v1.chat_service_pb2 import CompleteResponse, StreamResponse
from tidegate.v1.turn_pb2 import ToolCall

from router.errors import TidegateError
from router.model import Degraded, Failed, Finished, Logprobs, Started, TurnEvent, Usage
from router.transport.gathering import Gathered
from router.transport.outbox import FINISH_REASONS, Outbox, write_degraded, write_logprobs, write_started, write_usage

TURN = 1
"""The turn number in events of such calls."""


class Relay:
    """A sink that passes a turn's events on to an outbox and keeps its failure."""

    def __init__(self, outbox: Outbox[StreamResponse]) -> None:
        self.outbox = outbox
        self._failure: TidegateError | None = None

    def put(self, events: Sequence[TurnEvent]) -> None:
        """Takes a turn's events."""
        if isinstance(last := events[-1], Failed):
            self._failure = last.error
            events = events[:-1]
        self.outbox.put(TURN, events)

    def raise_failure(self) -> None:
        """Raises the turn's error, if it failed."""
        if self._failure is not None:
            raise self._failure


class Collector:
    """A sink that gathers a turn into one response."""

    def __init__(self) -> None:
        self._answer = Gathered()
        self._failure: TidegateError | None = None
        self._response = CompleteResponse()

    def put(self, events: Sequence[TurnEvent]) -> None:
        """Takes a turn's events."""
        self._answer.put(events)
        for event in events:
            match event:
                case Degraded():
                    write_degraded(self._response.degraded, event)
                case Started():
                    write_started(self._response.started, event)
                case Logprobs(tokens):
                    write_logprobs(self._response.logprobs, tokens)
                case Usage():
                    write_usage(self._response.usage, event)
                case Finished(reason):
                    self._response.finish_reason = FINISH_REASONS[reason]
                case Failed(error):
                    self._failure = error

    def response(self) -> CompleteResponse:
        """The whole answer. Raises the turn's error, if it failed."""
        if self._failure is not None:
            raise self._failure
        self._response.text = self._answer.text
        self._response.tool_calls.extend(ToolCall(id=it.id, name=it.name, arguments_json=it.arguments) for it in self._answer.calls)
        return self._response

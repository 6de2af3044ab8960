"""A whole answer out of its events, for whoever needs it in one piece."""

from __future__ import annotations

from collections.abc import Sequence

from router.model import Finished, FinishReason, TextDelta, ToolCall, TurnEvent
from router.tools import ToolCallDelta


class Gathered:
    """What a turn has said so far."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._calls: list[tuple[str, str, list[str]]] = []
        self._called = False

    def put(self, events: Sequence[TurnEvent]) -> None:
        """Takes a turn's events."""
        for event in events:
            match event:
                case TextDelta(text):
                    self._texts.append(text)
                case ToolCallDelta():
                    self._put_call(event)
                case Finished(FinishReason.TOOL_CALLS):
                    self._called = True

    @property
    def text(self) -> str:
        """The answer's text."""
        return "".join(self._texts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The answer's tool calls; none unless the turn has finished with them, for they may not be whole."""
        return tuple(ToolCall(id, name, "".join(arguments)) for id, name, arguments in self._calls) if self._called else ()

    def _put_call(self, delta: ToolCallDelta) -> None:
        if delta.index == len(self._calls):
            self._calls.append((delta.id, delta.name, []))
        self._calls[delta.index][2].append(delta.arguments)

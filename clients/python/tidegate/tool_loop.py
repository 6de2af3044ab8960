"""The tools loop: the model calls functions, gets their results, and goes on, until it answers.

Each round is a turn with the whole conversation, so a round can be tried again, or go to another router, like any turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidegate.errors import output_incomplete, too_many_rounds
from tidegate.functions import FunctionTool
from tidegate.messages import assistant, tool_result
from tidegate.turn import Turn
from tidegate.v1.event_pb2 import FINISH_REASON_TOOL_CALLS, Event, FinishReason, Usage
from tidegate.v1.turn_pb2 import Message, ToolCall

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asking(Generic[T]):
    """How rounds are asked: `ask` makes a turn of the conversation and the seconds that are left, `leave` is called when all is over."""

    ask: Callable[[Sequence[Message], float | None], Turn[T]]
    leave: Callable[[], None]
    deadline_s: float | None
    max_rounds: int


class ToolLoop(Generic[T]):
    """Iterate it once, over the events of all rounds, or ask for the `text()` or `value()` of the answer.

    `messages` is the conversation so far, calls and results included; `usage` the tokens of all rounds together.
    """

    def __init__(self, messages: Iterable[Message], tools: Iterable[FunctionTool], asking: Asking[T]) -> None:
        self.messages = list(messages)
        self.usage = Usage()
        self._asking = asking
        self._tools = {tool.name: tool for tool in tools}
        self._turn: Turn[T] | None = None
        self._failure: Exception | None = None
        self._iterated = False

    @property
    def finish_reason(self) -> FinishReason:
        """Why the newest round ended."""
        return self._turn.finish_reason if self._turn is not None else FinishReason.FINISH_REASON_UNSPECIFIED

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Events of all rounds. Raises TidegateError when one failed, OutputInvalid for a call that was cut, or TooManyRounds."""
        if self._iterated:
            raise RuntimeError("a tools loop can be iterated once")
        self._iterated = True
        until_s = None if self._asking.deadline_s is None else time.monotonic() + self._asking.deadline_s
        try:
            for _ in range(self._asking.max_rounds):
                if self.finish_reason == FINISH_REASON_TOOL_CALLS:
                    await self._answer_calls()
                async for event in self._round(None if until_s is None else max(0.0, until_s - time.monotonic())):
                    yield event
                if self.finish_reason != FINISH_REASON_TOOL_CALLS:
                    return
            raise too_many_rounds(self._asking.max_rounds)
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._asking.leave()

    async def text(self) -> str:
        """The answer of the last round, carrying all calls out. Raises as iterating does; RuntimeError when the loop was left early."""
        return await (await self._last_turn()).text()

    async def value(self) -> T:
        """That answer as what it was asked `into`."""
        return await (await self._last_turn()).value()

    async def _last_turn(self) -> Turn[T]:
        if not self._iterated:
            async for _ in self:
                pass
        if self._failure is not None:
            raise self._failure
        if self._turn is None or self.finish_reason == FINISH_REASON_TOOL_CALLS:
            raise RuntimeError("the tools loop was left before its end: there is no whole answer")
        return self._turn

    async def _round(self, deadline_s: float | None) -> AsyncIterator[Event]:
        turn = self._turn = self._asking.ask(self.messages, deadline_s)
        async with turn:
            async for event in turn:
                yield event
        if turn.usage is not None:
            self._add(turn.usage)
        if turn.tool_calls and turn.finish_reason != FINISH_REASON_TOOL_CALLS:
            raise output_incomplete(FinishReason.Name(turn.finish_reason))

    async def _answer_calls(self) -> None:
        assert self._turn is not None, "a round has ended"
        calls = self._turn.tool_calls
        results = await asyncio.gather(*map(self._run, calls))
        self.messages.append(assistant(await self._turn.text(), calls))
        self.messages += [tool_result(call.id, result) for call, result in zip(calls, results, strict=True)]

    async def _run(self, call: ToolCall) -> str:
        return await self._tools[call.name].run(call.arguments_json)

    def _add(self, usage: Usage) -> None:
        self.usage.prompt_tokens += usage.prompt_tokens
        self.usage.completion_tokens += usage.completion_tokens
        self.usage.cached_tokens += usage.cached_tokens

"""A turn as its caller has it: an async iterable of events, tried again where that is safe, given up when its caller gives it up."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar

from tidegate.attempt import Attempt
from tidegate.errors import deadline_exceeded
from tidegate.forms import Form
from tidegate.retry import Budget, Tries
from tidegate.v1.event_pb2 import Degraded, Event, FinishReason, Started, Usage
from tidegate.v1.turn_pb2 import ToolCall

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asking:
    """How a turn is asked: `begin` starts it on a stream, `leave` is called once when its caller is done with it."""

    begin: Callable[[], Attempt]
    leave: Callable[[], None]
    deadline_s: float | None
    retries: int
    budget: Budget


class Turn(Generic[T]):
    """One turn. Iterate it once, or ask for its `text()` or `value()`; leaving the loop early cancels it.

    `degraded`, `started`, `usage`, `finish_reason` and `tool_calls` are filled as their events pass, and stay when it fails.
    """

    def __init__(self, asking: Asking, form: Form[T]) -> None:
        self.started: Started | None = None
        self.degraded: Degraded | None = None
        """Set when a smaller model answers than the one asked for."""
        self.usage: Usage | None = None
        self.finish_reason: FinishReason = FinishReason.FINISH_REASON_UNSPECIFIED
        self.tool_calls: list[ToolCall] = []
        """Calls that the model made. To be carried out when `finish_reason` is FINISH_REASON_TOOL_CALLS, and only then."""
        self._asking = asking
        self._form = form
        self._tries = Tries(asking.retries, asking.budget)
        self._texts: list[str] = []
        self._attempt: Attempt | None = None
        self._failure: Exception | None = None
        self._until_s = float("inf")
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._iterated = self._left = self._cancelled = False

    async def __aiter__(self) -> AsyncIterator[Event]:
        """The turn's events to `finished`. Raises TidegateError when it failed; one that is tried again begins anew with `started`."""
        if self._iterated or self._left:
            raise RuntimeError("a turn can be iterated once")
        self._iterated = True
        try:
            self.begin()
            while True:
                event = await self._next()
                yield event
                if event.WhichOneof("event") == "finished":
                    self._asking.budget.earn()
                    return
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._leave()

    async def text(self) -> str:
        """The whole answer, waiting for what of it has not come. Raises as iterating does; RuntimeError when the turn was left early."""
        if not (self._left or self.finish_reason):
            async for _ in self:
                pass
        if self._failure is not None:
            raise self._failure
        if not self.finish_reason:
            raise RuntimeError("the turn was left before its end: there is no whole answer")
        return "".join(self._texts)

    async def value(self) -> T:
        """The whole answer as what it was asked `into`, else its text. Raises OutputInvalid when it is cut or of another type."""
        return self._form.read(await self.text(), self.finish_reason)

    async def cancel(self) -> None:
        """Asks the router to end the turn; `finished` CANCELLED follows unless it ends first."""
        self._cancelled = True
        if self._attempt is not None:
            self._attempt.cancel()

    async def aclose(self) -> None:
        """Gives the turn up: it is cancelled unless it has ended."""
        self._leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    def begin(self) -> None:
        """Sends the turn, if that has not been done."""
        if self._attempt is None:
            self._loop = asyncio.get_running_loop()
            if self._asking.deadline_s is not None:
                self._until_s = self._loop.time() + self._asking.deadline_s
            self._try()

    def _try(self) -> None:
        self.degraded = None
        attempt = self._attempt = self._asking.begin()
        if self._cancelled:
            attempt.cancel()
        if self._loop is not None and self._asking.deadline_s is not None:
            self._timer = self._loop.call_at(self._until_s, _expire, attempt)

    async def _next(self) -> Event:
        """The next event, of the next try where this one fails and there is one."""
        while True:
            assert self._attempt is not None, "begun before it is read"
            try:
                event = await self._attempt.next()
            except Exception as error:
                await self._try_again(error)
            else:
                self._note(event)
                return event

    async def _try_again(self, error: Exception) -> None:
        """Begins the next try in its time. Raises the error when there is none."""
        self._stop_timer()
        assert self._loop is not None, "begun before it is read"
        has_output = bool(self._texts or self.tool_calls)
        wait_s = None if has_output or self._cancelled else self._tries.wait_s(error, self._until_s - self._loop.time())
        if wait_s is None:
            raise error
        await asyncio.sleep(wait_s)
        self._try()

    def _note(self, event: Event) -> None:
        match event.WhichOneof("event"):
            case "text_delta":
                self._texts.append(event.text_delta.text)
            case "tool_call_delta":
                self._note_call(event)
            case "degraded":
                self.degraded = event.degraded
            case "started":
                self.started = event.started
            case "usage":
                self.usage = event.usage
            case "finished":
                self.finish_reason = event.finished.finish_reason

    def _note_call(self, event: Event) -> None:
        delta = event.tool_call_delta
        if delta.index == len(self.tool_calls):
            self.tool_calls.append(ToolCall(id=delta.call_id, name=delta.name))
        self.tool_calls[delta.index].arguments_json += delta.arguments_json

    def _leave(self) -> None:
        if self._left:
            return
        self._left = True
        self._stop_timer()
        if self._attempt is not None:
            self._attempt.cancel()
        self._asking.leave()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def __del__(self) -> None:
        if self._attempt is None or self._attempt.ended or self._left or self._loop is None or self._loop.is_closed():
            return
        warnings.warn("a turn was neither read to its end nor closed; it is cancelled", ResourceWarning, stacklevel=2, source=self)
        self._stop_timer()
        self._loop.call_soon_threadsafe(_give_up, self._attempt, self._asking)


def _expire(attempt: Attempt) -> None:
    attempt.cancel()
    attempt.fail(deadline_exceeded())


def _give_up(attempt: Attempt, asking: Asking) -> None:
    attempt.cancel()
    asking.leave()

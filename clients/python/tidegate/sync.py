"""The client for programs without an event loop.

    from tidegate.sync import Client

    with Client("127.0.0.1:8500") as client:
        for event in client.chat("What is the capital of France?"):
            print(event.text_delta.text, end="")

The same names and options as the asynchronous client, which does the work, on a loop in a background thread. A client may be used from
several threads. Leaving a loop over a turn early cancels it, and returns when that has been asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from tidegate import client, session, tool_loop, turn
from tidegate.background import BackgroundLoop
from tidegate.options import TurnOptions
from tidegate.v1.chat_service_pb2 import CountTokensResponse
from tidegate.v1.event_pb2 import Degraded, Event, FinishReason, Started, Usage
from tidegate.v1.turn_pb2 import Message, ToolCall

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _takes(model: Callable[Concatenate[Any, P], Any]) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, P], R]]:
    """The decorated method takes what the model takes."""
    return lambda method: method


class Turn(Generic[T]):
    """One turn. Iterate it once, or ask for its `text()` or `value()`; leaving the loop early cancels it."""

    def __init__(self, loop: BackgroundLoop, asked: turn.Turn[T]) -> None:
        self._loop = loop
        self._turn = asked

    @property
    def started(self) -> Started | None:
        """Where it runs."""
        return self._turn.started

    @property
    def degraded(self) -> Degraded | None:
        """Set when a smaller model answers than the one asked for."""
        return self._turn.degraded

    @property
    def usage(self) -> Usage | None:
        """Its tokens, when it has ended."""
        return self._turn.usage

    @property
    def finish_reason(self) -> FinishReason:
        """Why it ended."""
        return self._turn.finish_reason

    @property
    def tool_calls(self) -> list[ToolCall]:
        """Calls that the model made. To be carried out when `finish_reason` is FINISH_REASON_TOOL_CALLS, and only then."""
        return self._turn.tool_calls

    def __iter__(self) -> Iterator[Event]:
        return self._loop.iterate(self._turn)

    def text(self) -> str:
        """The whole answer, waiting for what of it has not come."""
        return self._loop.run(self._turn.text())

    def value(self) -> T:
        """The whole answer as what it was asked `into`, else its text."""
        return self._loop.run(self._turn.value())

    def cancel(self) -> None:
        """Asks the router to end the turn; `finished` CANCELLED follows unless it ends first."""
        self._loop.run(self._turn.cancel())

    def close(self) -> None:
        """Gives the turn up: it is cancelled unless it has ended."""
        self._loop.run(self._turn.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class ToolLoop(Generic[T]):
    """Iterate it once, over the events of all rounds, or ask for the `text()` or `value()` of the answer."""

    def __init__(self, loop: BackgroundLoop, rounds: tool_loop.ToolLoop[T]) -> None:
        self._loop = loop
        self._rounds = rounds

    @property
    def messages(self) -> list[Message]:
        """The conversation so far, calls and results included."""
        return self._rounds.messages

    @property
    def usage(self) -> Usage:
        """Tokens of all rounds together."""
        return self._rounds.usage

    @property
    def finish_reason(self) -> FinishReason:
        """Why the newest round ended."""
        return self._rounds.finish_reason

    def __iter__(self) -> Iterator[Event]:
        return self._loop.iterate(self._rounds)

    def text(self) -> str:
        """The answer of the last round, carrying all calls out."""
        return self._loop.run(self._rounds.text())

    def value(self) -> T:
        """That answer as what it was asked `into`."""
        return self._loop.run(self._rounds.value())


class Session:
    """Many turns on one stream, to be used with `with`: leaving it cancels the turns that still run."""

    def __init__(self, loop: BackgroundLoop, opened: session.Session) -> None:
        self._loop = loop
        self._session = opened

    @property
    def going_away(self) -> bool:
        """Whether the newest stream's router has said that it goes. The next turn is started on another stream."""
        return self._session.going_away

    @overload
    def start(self, *messages: Message | str, into: type[T], **options: Unpack[TurnOptions]) -> Turn[T]: ...
    @overload
    def start(self, *messages: Message | str, into: None = None, **options: Unpack[TurnOptions]) -> Turn[str]: ...
    def start(self, *messages: Message | str, into: Any = None, **options: Unpack[TurnOptions]) -> Turn[Any]:
        """Starts a turn. What is wrong with it is raised where it is read."""
        return Turn(self._loop, self._loop.run(self._session.start(*messages, into=into, **options)))

    def close(self) -> None:
        """Cancels what runs and ends the streams."""
        self._loop.run(self._session.close())

    def __enter__(self) -> Self:
        self._loop.run(self._session.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Client:
    """A connection to a router; see `tidegate.Client` for its options."""

    @_takes(client.Client.__init__)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._client = client.Client(*arguments, **options)
        self._loop = BackgroundLoop()

    @overload
    def chat(
        self, *messages: Message | str, into: type[T], headers: Mapping[str, str] | None = None, **options: Unpack[TurnOptions]
    ) -> Turn[T]: ...
    @overload
    def chat(
        self, *messages: Message | str, into: None = None, headers: Mapping[str, str] | None = None, **options: Unpack[TurnOptions]
    ) -> Turn[str]: ...
    def chat(self, *messages: Message | str, **options: Any) -> Turn[Any]:
        """One turn on a stream of its own, sent when it is iterated or asked for its text or value."""
        return Turn(self._loop, self._client.chat(*messages, **options))

    @_takes(client.Client.session)
    def session(self, **options: Any) -> Session:
        """Many turns on one stream, to be used with `with`."""
        return Session(self._loop, self._client.session(**options))

    @overload
    def run_tools(
        self,
        *messages: Message | str,
        into: type[T],
        max_rounds: int = 8,
        headers: Mapping[str, str] | None = None,
        **options: Unpack[TurnOptions],
    ) -> ToolLoop[T]: ...
    @overload
    def run_tools(
        self,
        *messages: Message | str,
        into: None = None,
        max_rounds: int = 8,
        headers: Mapping[str, str] | None = None,
        **options: Unpack[TurnOptions],
    ) -> ToolLoop[str]: ...
    def run_tools(self, *messages: Message | str, **options: Any) -> ToolLoop[Any]:
        """Turns in which the model calls `tools`, which are functions with type hints here, until it answers."""
        return ToolLoop(self._loop, self._client.run_tools(*messages, **options))

    @_takes(client.Client.count_tokens)
    def count_tokens(self, *messages: Message | str, **options: Any) -> CountTokensResponse:
        """The tokens of a prompt as the router counts them, and how many the model holds; no model runs. Raises TidegateError."""
        return self._loop.run(self._client.count_tokens(*messages, **options))

    def close(self) -> None:
        """Ends everything on this connection, and the background thread."""
        if self._loop.is_running:
            self._loop.run(self._client.close())
            self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

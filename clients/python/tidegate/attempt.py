"""One try of a turn on one stream: its events, in the order in which they come, until one ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidegate.errors import TidegateError
from tidegate.v1.event_pb2 import Event
from tidegate.v1.turn_pb2 import TurnSpec


class Attempt:
    """A turn as a stream knows it. `seen` says that the router has answered something."""

    def __init__(self, number: int, spec: TurnSpec, on_cancel: Callable[[int], None]) -> None:
        self.number = number
        self.spec = spec
        self.seen = self.cancelled = self.ended = False
        self._on_cancel = on_cancel
        self._events: asyncio.Queue[Event | Exception] = asyncio.Queue()

    async def next(self) -> Event:
        """Waits for the next event. Raises TidegateError when the turn failed."""
        event = await self._events.get()
        if isinstance(event, Exception):
            raise event
        return event

    def take(self, event: Event) -> None:
        """What the router says about this turn."""
        self.seen = True
        match event.WhichOneof("event"):
            case "failed":
                self.fail(TidegateError(event.failed.status))
            case "finished":
                self._put(event)
                self.ended = True
            case _:
                self._put(event)

    def fail(self, error: Exception) -> None:
        """Ends it with an error."""
        self._put(error)
        self.ended = True

    def cancel(self) -> None:
        """Asks the router to end it; `finished` CANCELLED follows unless it ends first."""
        if not self.ended and not self.cancelled:
            self.cancelled = True
            self._on_cancel(self.number)

    def _put(self, event: Event | Exception) -> None:
        if not self.ended:
            self._events.put_nowait(event)

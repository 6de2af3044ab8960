"""What a stream's frames have told so far: enough to go on after them."""

from __future__ import annotations

import json

from tidegate.v1.chat_service_pb2 import ConverseResponse
from tidegate.v1.event_pb2 import FINISH_REASON_TOOL_CALLS

from router.transport.outbox import STREAM


class Progress:
    """The last turn that was started, and the number of the last event of the stream itself and of each turn that may have another.

    Those are the turns that run, and the turns in `waiting`, which have called tools. `version` rises with each change, so that a write
    that was delayed does not undo a later one.
    """

    def __init__(self) -> None:
        self.version = 0
        self.last_turn = 0
        self.events = {STREAM: 0}
        self.waiting: set[int] = set()

    @property
    def running(self) -> list[int]:
        """Turns whose end has not been told."""
        return [turn for turn in self.events if turn != STREAM and turn not in self.waiting]

    def start(self, turn: int) -> None:
        """A turn begins or goes on; nothing is told of that yet."""
        self.version += 1
        self.last_turn = max(self.last_turn, turn)
        self.events.setdefault(turn, 0)
        self.waiting.discard(turn)

    def forget(self, turn: int) -> None:
        """A turn goes on no more."""
        self.version += 1
        self.events.pop(turn, None)
        self.waiting.discard(turn)

    def note(self, frame: ConverseResponse) -> None:
        """A frame is logged."""
        self.version += 1
        for event in frame.events:
            self.events[event.turn] = event.sequence
            if event.finished.finish_reason == FINISH_REASON_TOOL_CALLS:
                self.waiting.add(event.turn)
            elif event.HasField("finished") or event.HasField("failed"):
                del self.events[event.turn]

    def dump(self) -> str:
        """As text."""
        return json.dumps([self.version, self.last_turn, list(self.waiting), *self.events.items()])


def load_progress(text: str | bytes) -> Progress:
    """From `dump`'s text."""
    progress = Progress()
    progress.version, progress.last_turn, waiting, *events = json.loads(text)
    progress.waiting, progress.events = set(waiting), dict(events)
    return progress

"""One stream on its way into Redis: what describes it, and what of its log is written."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate.v1.chat_service_pb2 import ConverseResponse

from router.transport.exchange.progress import Progress
from router.transport.frame_log import FrameLog

Owner = tuple[str, str]
"""Tenant and user: whose a stream is."""


@dataclass(frozen=True, slots=True)
class About:
    """What does not change about a stream; `setup` and `ready` are serialised."""

    stream_id: str
    owner: Owner
    request_id: str
    keep_s: float
    setup: bytes
    ready: bytes

    def dump(self) -> str:
        """As text."""
        values = (
            self.stream_id,
            self.owner,
            self.request_id,
            self.keep_s,
            *(b64encode(data).decode() for data in (self.setup, self.ready)),
        )
        return json.dumps(values)


def load_about(text: str | bytes) -> About:
    """From `dump`'s text."""
    stream_id, (tenant, user), request_id, keep_s, setup, ready = json.loads(text)
    return About(stream_id, (tenant, user), request_id, keep_s, b64decode(setup), b64decode(ready))


class Journal:
    """Follows a stream at its home. `changed` is called when there is something to write."""

    def __init__(self, about: About, log: FrameLog, progress: Progress, changed: Callable[[Journal], None]) -> None:
        self.about = about
        self.log = log
        self.progress = progress
        self.written = log.first - 1
        """The last frame that is in Redis."""
        self.described = asyncio.Event()
        """Set while Redis knows the stream."""
        self.is_over = False
        """Whether Redis may forget the stream."""
        self._changed = changed

    def start(self, turn: int) -> None:
        """A turn begins, or goes on with tool results."""
        self.progress.start(turn)
        self._changed(self)

    def forget(self, turn: int) -> None:
        """A turn will not go on with tool results."""
        self.progress.forget(turn)

    def note(self, frame: ConverseResponse) -> None:
        """A frame was numbered and logged."""
        self.progress.note(frame)
        self._changed(self)

    def unwritten(self) -> tuple[int, Sequence[bytes]]:
        """The frames that lack in Redis, and the number of the first."""
        first = max(self.written + 1, self.log.first)
        return first, self.log.tail(first)

    def forget_written(self) -> None:
        """Redis has lost the stream."""
        self.described.clear()
        self.written = self.log.first - 1

"""Where the engine's loop sends what it has: a lane's frames, and the outcome of a request."""

from __future__ import annotations

from typing import Protocol

from server.engine.base import Output
from server.lanes import Frame


class LaneReply(Protocol):
    """Where a lane's frames go."""

    def send_frame(self, frame: Frame) -> None: ...
    def end(self, error: str | None) -> None: ...
    def is_cancelled(self) -> bool: ...


class Reply(Protocol):
    """Where a request's outcome goes: its tokens when it has no lane, and its end in any case."""

    def send_output(self, output: Output) -> None: ...
    def end(self, output: Output) -> None: ...
    def refuse(self, message: str) -> None: ...
    def is_cancelled(self) -> bool: ...

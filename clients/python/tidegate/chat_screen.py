"""What `tidegate chat` shows. Answers go to the output; all else is shown at a terminal only, and faults go to standard error."""

from __future__ import annotations

import sys
import time

from tidegate.errors import TidegateError
from tidegate.turn import Turn
from tidegate.v1.event_pb2 import Event, FinishReason, Queued

_CLEAR_LINE = "\r\x1b[K"
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


class Screen:
    """One turn at a time."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self.prompt = "\n> " if self._is_terminal and sys.stdin.isatty() else ""
        self._waits = False
        self._began = self._first = self._last = 0.0

    def greet(self, target: str, model: str) -> None:
        """Says who is talked to."""
        if self.prompt:
            self.tell(f"Tidegate at {target}, {model or 'its default model'}. /help lists what can be typed; Ctrl-D leaves.")

    def tell(self, text: str) -> None:
        """A remark of the program's own."""
        print(f"{_DIM}{text}{_PLAIN}", flush=True)

    def begin(self) -> None:
        """A turn begins."""
        self._began, self._first = time.monotonic(), 0.0

    def show(self, event: Event) -> None:
        """One event of the turn."""
        if event.HasField("queued"):
            self._show_place(event.queued)
        elif event.HasField("text_delta"):
            self._stop_waiting()
            self._last = time.monotonic()
            self._first = self._first or self._last
            print(event.text_delta.text, end="", flush=True)

    def fail(self, error: TidegateError) -> None:
        """The turn has failed."""
        self._stop_waiting()
        if self._first:
            print(flush=True)
        print(f"[{error}]" if self.prompt else f"tidegate chat: {error}", file=sys.stderr)

    def end(self, turn: Turn[str]) -> None:
        """The turn has finished."""
        self._stop_waiting()
        notes = [f"[{turn.degraded.to_model} answered: {turn.degraded.reason}]"] if turn.degraded else []
        if turn.finish_reason == FinishReason.FINISH_REASON_CANCELLED:
            notes.append("[cancelled]")
        print(*(["", *notes] if self._is_terminal else ()))
        if self._is_terminal:
            self.tell(self._describe(turn))
        else:
            print(*notes, sep="\n", end="\n" if notes else "", file=sys.stderr)

    def _describe(self, turn: Turn[str]) -> str:
        """The model, and what its answer took."""
        parts = [turn.started.model] if turn.started else []
        made = turn.usage.completion_tokens if turn.usage else 0
        if self._first:
            parts.append(f"first token after {self._first - self._began:.2f} s")
        if made > 1 and self._last > self._first:
            parts.append(f"{(made - 1) / (self._last - self._first):.0f} tokens/s")
        if turn.usage:
            parts.append(f"{turn.usage.prompt_tokens} tokens in ({turn.usage.cached_tokens} cached), {made} out")
        return " · ".join(parts)

    def _show_place(self, queued: Queued) -> None:
        if self._is_terminal:
            self._waits = True
            wait_s = queued.eta.ToTimedelta().total_seconds()
            print(f"{_CLEAR_LINE}{_DIM}waiting: {queued.position} before you, about {wait_s:.0f} s{_PLAIN}", end="", flush=True)

    def _stop_waiting(self) -> None:
        if self._waits:
            self._waits = False
            print(_CLEAR_LINE, end="", flush=True)

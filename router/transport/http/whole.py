"""An answer as one JSON object, sent when all its turns have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from router.errors import TidegateError, internal
from router.model import Degraded, Failed, Finished, Logprobs, Started, TokenLogprob, TurnEvent, Usage
from router.transport.gathering import Gathered
from router.transport.http.forms import FINISH_REASONS, Form, Json, add_usage, write_usage


@dataclass(slots=True)
class _Choice:
    said: Gathered = field(default_factory=Gathered)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: str = ""
    has_ended: bool = False


class WholeAnswer:
    """Gathers the turns of one request; `put` is their sink."""

    def __init__(self, choices: int, form: Form) -> None:
        self._choices = [_Choice() for _ in range(choices)]
        self._running = choices
        self._form = form
        self._usage = Usage(0, 0)
        self.started: Started | None = None
        self.degraded: Degraded | None = None
        self._failure: TidegateError | None = None
        self._done = asyncio.Event()

    def put(self, index: int, events: Sequence[TurnEvent]) -> None:
        """Takes events of a choice's turn."""
        choice = self._choices[index]
        choice.said.put(events)
        for event in events:
            match event:
                case Logprobs(tokens):
                    choice.logprobs += tokens
                case Degraded():
                    self.degraded = event
                case Started():
                    self.started = event
                case Usage():
                    self._usage = add_usage(self._usage, event)
                case Finished(reason):
                    choice.finish = FINISH_REASONS.get(reason, "")
                    self._end(choice, None if choice.finish else internal())
                case Failed(error):
                    self._end(choice, error)

    async def wait(self) -> None:
        """Returns when all turns have finished. Raises the error of the first that fails."""
        await self._done.wait()
        if self._failure is not None:
            raise self._failure

    def choices(self) -> Json:
        """The answers and what they cost, as fields of the response."""
        return {"choices": [self._write(index, choice) for index, choice in enumerate(self._choices)], "usage": write_usage(self._usage)}

    def _write(self, index: int, choice: _Choice) -> Json:
        content = self._form.whole_text(choice.said.text, choice.said.calls)
        return self._form.choice(index, content, choice.logprobs, choice.finish)

    def _end(self, choice: _Choice, failure: TidegateError | None) -> None:
        if choice.has_ended:
            return
        choice.has_ended = True
        self._running -= 1
        self._failure = self._failure or failure
        if self._failure is not None or not self._running:
            self._done.set()

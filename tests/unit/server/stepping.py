"""What the tests of the stepper share: a scripted engine that minds its contract, replies that keep what they get, and the thread."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from queue import SimpleQueue

from server.engine.base import Description, Engine, Finish, Load, Output, Request
from server.engine.scripted import Action, Emit, Script, ScriptedEngine
from server.lanes import Frame
from server.stepper import Stepper

PATIENCE_S = 10.0
ENDLESS = repeat(Emit((2,)))
DESCRIPTION = Description("small", "scripted", "fast", 2048, 266, (2,), 8, 100, 32)


class StrictEngine(ScriptedEngine):
    """Plays `script(request)` and cannot be used once it is closed."""

    def __init__(self, script: Script | None = None) -> None:
        super().__init__(DESCRIPTION, script or spell, 0.0)
        self.closed = False

    def step(self) -> list[Output]:
        assert not self.closed
        return super().step()

    def load(self) -> Load:
        assert not self.closed
        return super().load()

    def close(self) -> None:
        assert not self.closed
        super().close()
        self.closed = True


def spell(request: Request) -> Iterator[Action]:
    """The prompt again, a token a step."""
    return (Emit((token,)) for token in request.prompt)


class Held:
    """A script that stands still in the step after its first token until `release()`, and then goes on with `then`.

    What a test does meanwhile comes before the step after.
    """

    def __init__(self, then: Iterable[Action]) -> None:
        self._then = then
        self._standing = threading.Event()
        self._go = threading.Event()

    def __call__(self, request: Request) -> Iterable[Action]:
        yield Emit((1,))
        self._standing.set()
        assert self._go.wait(PATIENCE_S)
        yield from self._then

    def wait(self) -> None:
        """Until the engine stands still."""
        assert self._standing.wait(PATIENCE_S)

    def release(self) -> None:
        """Lets the engine go on."""
        self._go.set()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a lane's frames held for one request until its end."""

    tokens: list[int]
    finish: Finish
    error: str | None


@dataclass(slots=True)
class FakeLane:
    """A lane's stream, as its router sees it."""

    frames: SimpleQueue[Frame] = field(default_factory=SimpleQueue)
    ends: SimpleQueue[str | None] = field(default_factory=SimpleQueue)
    gone: bool = False
    _answers: dict[int, Answer] = field(default_factory=dict)
    _tokens: dict[int, list[int]] = field(default_factory=dict)

    def send_frame(self, frame: Frame) -> None:
        self.frames.put(frame)

    def end(self, error: str | None) -> None:
        self.ends.put(error)

    def is_cancelled(self) -> bool:
        return self.gone

    def next_frame(self) -> Frame:
        """The next frame, with its entries taken into account."""
        frame, at = self.frames.get(timeout=PATIENCE_S), 0
        details = [json.loads(text) for text in frame.detail]
        errors = {detail.get("request"): detail.get("error") for detail in details}
        for request, count, finish in zip(frame.request, frame.counts, frame.finish, strict=True):
            tokens = self._tokens.setdefault(request, [])
            tokens += frame.output_ids[at : at + count]
            at += count
            if finish:
                self._answers[request] = Answer(tokens, Finish(finish), errors[request])
        return frame

    def answer(self, request: int) -> Answer:
        """Reads frames until the request has ended."""
        while request not in self._answers:
            self.next_frame()
        return self._answers[request]

    def tokens(self, request: int) -> list[int]:
        """Those of a request in the frames read so far."""
        return self._tokens.get(request, [])

    def ended(self) -> str | None:
        """Waits for the end of the lane, and gives its error."""
        return self.ends.get(timeout=PATIENCE_S)


@dataclass(slots=True)
class FakeReply:
    """A request's own response stream."""

    outputs: SimpleQueue[Output] = field(default_factory=SimpleQueue)
    ends: SimpleQueue[Output | str] = field(default_factory=SimpleQueue)
    gone: bool = False

    def send_output(self, output: Output) -> None:
        self.outputs.put(output)

    def end(self, output: Output) -> None:
        self.ends.put(output)

    def refuse(self, message: str) -> None:
        self.ends.put(message)

    def is_cancelled(self) -> bool:
        return self.gone

    def ended(self) -> Output:
        """Waits for the end of a request that was taken."""
        end = self.ends.get(timeout=PATIENCE_S)
        assert isinstance(end, Output)
        return end

    def refused(self) -> str:
        """Waits for the refusal of a request."""
        end = self.ends.get(timeout=PATIENCE_S)
        assert isinstance(end, str)
        return end


def make_stepper(engine: Engine | None = None, *replacements: Engine, observe: Callable[[Load], None] = lambda load: None) -> Stepper:
    """`replacements` follow an engine that breaks; when there are no more, none can be built."""
    return Stepper(deque([engine or StrictEngine(), *replacements]).popleft, observe)


@contextmanager
def stepping(stepper: Stepper) -> Iterator[Stepper]:
    """Runs the stepper's loop in a thread. Commands given before come first, all at once."""
    thread = threading.Thread(target=stepper.run)
    thread.start()
    try:
        yield stepper
    finally:
        stepper.stop()
        thread.join(PATIENCE_S)
    assert not thread.is_alive()

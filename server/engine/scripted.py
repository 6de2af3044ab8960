"""An engine that plays scripts: the test double and the load generator. Same port, same stepper, same lanes as the real ones.

A script is a sequence of actions for one request; each step of the engine plays one action of every running request, so tokens come in
step-synchronised bursts, as from in-flight batching.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from server.engine.base import (
    Description,
    EngineBroken,
    Finish,
    Load,
    Output,
    Request,
    Timing,
    check_request,
)


@dataclass(frozen=True, slots=True)
class Emit:
    """Brings these tokens in one step."""

    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Brings nothing for this many seconds; others go on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class End:
    """Ends the request. A script that runs out, or reaches max_new_tokens, ends by itself."""

    finish: Finish
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Break:
    """The whole engine breaks in this step."""


@dataclass(frozen=True, slots=True)
class Stall:
    """The step itself takes this long, for everybody."""

    seconds: float


Action = Emit | Wait | End | Break | Stall
Script = Callable[[Request], Iterable[Action]]


@dataclass(slots=True)
class _Playing:
    request: Request
    actions: Iterator[Action]
    arrived_ns: int
    started: float
    produced: int = 0
    first_token: float = 0.0
    resume_at: float = 0.0


class ScriptedEngine:
    """Plays `script(request)` for each request, one action a step, a step every `step_s` seconds.

    `calls`, `made` and `cancelled` count requests taken, tokens produced and requests cancelled; `requests` keeps what was asked.
    """

    def __init__(self, description: Description, script: Script, step_s: float) -> None:
        self.calls = self.made = self.cancelled = 0
        self.requests: deque[Request] = deque(maxlen=1024)
        self._description = replace(description, isolates_salts=True)  # it caches nothing
        self._script = script
        self._step_s = step_s
        self._waiting: deque[_Playing] = deque()
        self._running: dict[int, _Playing] = {}

    @property
    def description(self) -> Description:
        return self._description

    def submit(self, request: Request) -> None:
        check_request(request, self._description)
        self.calls += 1
        self.requests.append(request)
        self._waiting.append(_Playing(request, iter(self._script(request)), time.time_ns(), time.monotonic()))

    def cancel(self, number: int) -> None:
        known = len(self._running) + len(self._waiting)
        self._running.pop(number, None)
        self._waiting = deque(playing for playing in self._waiting if playing.request.number != number)
        self.cancelled += known - len(self._running) - len(self._waiting)

    def has_work(self) -> bool:
        return bool(self._running or self._waiting)

    def step(self) -> list[Output]:
        time.sleep(self._step_s)
        while self._waiting and len(self._running) < self._description.max_sequences:
            playing = self._waiting.popleft()
            self._running[playing.request.number] = playing
        return [output for playing in list(self._running.values()) if (output := self._play(playing))]

    def load(self) -> Load:
        total = self._description.total_blocks
        used = sum(-(-(len(p.request.prompt) + p.produced) // self._description.tokens_per_block) for p in self._running.values())
        return Load(
            active=len(self._running),
            queued=len(self._waiting),
            free_blocks=total - used,
            total_blocks=total,
            tokens_per_block=self._description.tokens_per_block,
            step_us=round(self._step_s * 1e6),
        )

    def take_kv_events(self) -> list[Mapping[str, object]]:
        return []

    def close(self) -> None:
        self._running.clear()
        self._waiting.clear()

    def _play(self, playing: _Playing) -> Output | None:
        now = time.monotonic()
        if now < playing.resume_at:
            return None
        match next(playing.actions, End(Finish.END_ID)):
            case Emit(tokens):
                return self._emit(playing, tokens)
            case End(finish, error):
                return self._end(playing, Output(playing.request.number, [], finish, error=error))
            case Wait(seconds):
                playing.resume_at = now + seconds
            case Stall(seconds):
                time.sleep(seconds)
            case Break():
                raise EngineBroken("the script broke the engine")
        return None

    def _emit(self, playing: _Playing, tokens: tuple[int, ...]) -> Output:
        output = Output(playing.request.number, list(tokens[: playing.request.max_new_tokens - playing.produced]))
        if playing.request.log_probs:
            output.log_probs = [log_prob_of(token) for token in output.tokens]
        playing.produced += len(output.tokens)
        playing.first_token = playing.first_token or time.monotonic()
        self.made += len(output.tokens)
        if playing.produced < playing.request.max_new_tokens:
            return output
        output.finish = Finish.LENGTH
        return self._end(playing, output)

    def _end(self, playing: _Playing, output: Output) -> Output:
        del self._running[playing.request.number]
        now = time.monotonic()
        first = playing.first_token or now
        output.timing = Timing(playing.arrived_ns, 0, round((first - playing.started) * 1e9), round((now - first) * 1e9), 0)
        return output


def log_prob_of(token: int) -> float:
    """The log probability that scripts give a token: another one for each, so that tests see where it went."""
    return -token / 1024


def count_up(request: Request) -> Iterator[Action]:
    """The load generator's script: one token a step until max_new_tokens."""
    return (Emit((32 + index % 64,)) for index in range(request.max_new_tokens))

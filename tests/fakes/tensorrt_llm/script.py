"""What the fake executor plays: one action of every running request in each iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Make:
    """Samples these tokens in one iteration, as with speculative decoding; with none the iteration was prefill. An end id ends it."""

    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fail:
    """The executor answers this request with an error."""

    message: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The executor ends the request for this reason: a finish_reason of the library."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class Die:
    """The executor dies: with an error, that a background thread reports, or silently, as when a worker process is killed."""

    error: Exception | None


Action = Make | Fail | Finish | Die
Script = Callable[[list[int]], Iterable[Action]]


def count_up(prompt: list[int]) -> Iterable[Action]:
    """One token in each iteration, from 100 on."""
    return (Make((100 + index,)) for index in range(10_000))

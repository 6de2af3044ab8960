"""Moments taken where gRPC hands over a message's bytes: the deserializer runs before anything else of ours does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

Message = TypeVar("Message")


class Stamped(NamedTuple, Generic[Message]):
    """A message and when its bytes came, in seconds of `time.perf_counter()`."""

    at: float
    message: Message


def stamp(parse: Callable[[bytes], Message]) -> Callable[[bytes], Stamped[Message]]:
    """A deserializer that looks at the clock first."""
    clock = time.perf_counter

    def deserialize(data: bytes) -> Stamped[Message]:
        now = clock()
        return Stamped(now, parse(data))

    return deserialize

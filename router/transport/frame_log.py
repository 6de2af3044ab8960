"""The latest frames of one stream, kept until the caller shows that they arrived.

A frame that gRPC has taken may still be lost with its connection: it waits in a buffer, or travels. What a caller has is told only when it
comes back. Until then frames are kept within two bounds: bytes, and, while a connection stands, a time after which they have arrived for
sure, since a connection over which nothing arrives any more is found dead by its keepalive before.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from router.errors import resume_gap

IN_FLIGHT_S = 60.0
"""Longer than keepalive lets a dead connection stand."""


class _Kept(NamedTuple):
    sent_s: float
    data: bytes


class FrameLog:
    """Serialised frames by their sequence, which rises by one from 1."""

    def __init__(self, max_bytes: int, clock: Callable[[], float] = time.monotonic, *, last: int = 0, frames: Sequence[bytes] = ()) -> None:
        """`frames` are those up to `last` that are kept from before."""
        self._max_bytes = max_bytes
        self._clock = clock
        self._frames = deque(_Kept(clock(), data) for data in frames)
        self._bytes = sum(map(len, frames))
        self._last = last

    @property
    def first(self) -> int:
        """Sequence of the oldest frame that is kept; one above `last` when none is."""
        return self._last - len(self._frames) + 1

    @property
    def last(self) -> int:
        """Sequence of the newest frame; 0 before the first."""
        return self._last

    def append(self, data: bytes) -> None:
        """Adds the next frame, and drops old ones beyond the bounds."""
        now = self._clock()
        self._frames.append(_Kept(now, data))
        self._bytes += len(data)
        self._last += 1
        while len(self._frames) > 1 and (self._bytes > self._max_bytes or self._frames[0].sent_s < now - IN_FLIGHT_S):
            self._drop()

    def tail(self, first: int) -> Sequence[bytes]:
        """The frames from this one on, which is kept or the next."""
        return [frame.data for frame in islice(self._frames, first - self.first, None)]

    def replay(self, arrived: int) -> Sequence[bytes]:
        """All frames after the one that arrived last, to be sent again now. Raises CallerError RESUME_GAP when one of them is kept no more,
        or that one was never sent."""
        if not self.first - 1 <= arrived <= self._last:
            raise resume_gap()
        while self.first <= arrived:
            self._drop()
        now = self._clock()
        self._frames = deque(_Kept(now, frame.data) for frame in self._frames)
        return [frame.data for frame in self._frames]

    def _drop(self) -> None:
        self._bytes -= len(self._frames.popleft().data)

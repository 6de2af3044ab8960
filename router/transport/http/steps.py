"""The end of an engine step: all streams that it brought something are written in one go.

A worker's frame brings tokens for every running turn. To write each stream as soon as its turn was fed would have the kernel's network
code and the interpreter push each other out of the processor's caches with every token. First all is encoded and then all is written, which
takes a fifth less time at 64 streams.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from router.transport.http.exchange import Connection


class Stepping(Protocol):
    """A stream that takes part."""

    def end_step(self) -> tuple[Connection, bytes] | None:
        """A piece of its body and the connection for it; None when there is nothing to write."""


class Steps:
    """Shared by the streams of a listener."""

    def __init__(self) -> None:
        self._streams: list[Stepping] = []

    def add(self, stream: Stepping) -> None:
        """Ends the stream's step as soon as the event loop turns: behind the frame that is being read."""
        if not self._streams:
            asyncio.get_running_loop().call_soon(self._end)
        self._streams.append(stream)

    def _end(self) -> None:
        streams, self._streams = self._streams, []
        pieces = [piece for stream in streams if (piece := stream.end_step()) is not None]
        for connection, data in pieces:
            connection.write_piece(data)

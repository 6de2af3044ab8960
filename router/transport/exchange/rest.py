"""What a former home still has to tell of a stream's turns, as the new home gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from router.errors import stream_taken

RELEASED = b"released"
UNKNOWN = b"unknown"
TAKEN = b"taken"


class Rest:
    """`home` is the router that runs the turns, `key` where it tells of them. `released` is whether it gave the stream away; CallerError
    STREAM_TAKEN when a newer attempt of the caller has it.

    Frames end with None: nothing more comes, since all is told or the router is gone.
    """

    def __init__(self, home: str, key: str) -> None:
        self.home = home
        self.key = key
        self.released: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()

    def read(self, entry: Mapping[bytes, bytes]) -> None:
        """Takes an entry from under the key."""
        answer = entry.get(b"answer")
        if answer is None:
            self.frames.put_nowait(entry[b"f"] or None)
        elif self.released.done():
            return
        elif answer == TAKEN:
            self.released.set_exception(stream_taken())
        else:
            self.released.set_result(answer == RELEASED)

    def lose(self) -> None:
        """The other router is gone."""
        self.frames.put_nowait(None)
        if not self.released.done():
            self.released.set_result(False)

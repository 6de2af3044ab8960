"""What other routers send to this one: Redis streams that are read together, by one blocking call.

Messages are entries of an inbox, which every router has. The rest of turns that another router runs comes in a Redis stream of its own,
which is read from its first entry on, so that nothing is missed that was written before it is known here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from router.errors import describe_fault

_BLOCK_MS = 1000
_COUNT = 256
_PAUSE_S = 0.25
_INBOX = 10_000

log = logging.getLogger("tidegate.transport")

Reader = Callable[[Mapping[bytes, bytes]], None]


class Mailbox:
    """Calls a reader for each entry of its stream, in order."""

    def __init__(self, redis: Redis, inbox: str, read: Reader) -> None:
        """`redis` must allow for calls that take a second."""
        self._redis = redis
        self._inbox = inbox
        self._readers: dict[bytes, Reader] = {inbox.encode(): read}
        self._positions: dict[bytes, bytes] = {inbox.encode(): b"0"}

    async def open(self, key: str, read: Reader) -> None:
        """Reads one more stream. Raises RedisError."""
        self._readers[key.encode()], self._positions[key.encode()] = read, b"0"
        await self.send(self._inbox)  # the call that blocks does not know of it yet

    def close(self, key: str) -> None:
        """Reads a stream no more."""
        self._readers.pop(key.encode(), None)
        self._positions.pop(key.encode(), None)

    async def send(self, inbox: str, **message: str | int) -> None:
        """Puts a message into an inbox. Raises RedisError."""
        fields: dict[Any, Any] = {"op": "", **message}
        await self._redis.xadd(inbox, fields, maxlen=_INBOX)

    async def listen(self) -> None:
        """A task. While Redis is away nothing comes, and nothing is lost."""
        while True:
            positions: dict[Any, Any] = dict(self._positions)
            try:
                news: Any = await self._redis.xread(positions, count=_COUNT, block=_BLOCK_MS)
            except (RedisError, OSError, TimeoutError):
                await asyncio.sleep(_PAUSE_S)
                continue
            for key, entries in news:
                for position, fields in entries:
                    self._take(key, position, fields)

    def _take(self, key: bytes, position: bytes, fields: Mapping[bytes, bytes]) -> None:
        if (read := self._readers.get(key)) is None:
            return
        self._positions[key] = position
        try:
            read(fields)
        except Exception as error:  # one message must not end the reading of all others
            log.error("a message of another router was not understood: %s", describe_fault(error))

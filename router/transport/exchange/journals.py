"""The journals of all streams at home here, written behind what is sent: all that have news together, in few round trips."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from router.transport.exchange.journal import Journal
from router.transport.exchange.scripts import Script

AWAY = (RedisError, OSError, TimeoutError)
"""What calls raise while Redis does not answer."""

_END_S = 0.1
_PACE_S = 0.02
_PAUSE_S = 0.25


class Journals:
    """Journals by the id of their stream."""

    def __init__(self, redis: Redis, router: str, keys: Callable[[str], list[str]], spare_s: float, lose: Callable[[str], None]) -> None:
        """A stream is kept `spare_s` longer than it outlives a connection. `lose` hears of streams that another router has claimed."""
        self._redis = redis
        self._router = router
        self._keys = keys
        self._spare_s = spare_s
        self._lose = lose
        self._append = Script("append")
        self._journals: dict[str, Journal] = {}
        self._changed: dict[Journal, None] = {}
        self._news = asyncio.Event()

    def add(self, journal: Journal) -> None:
        """Begins to write a stream's journal."""
        self._journals[journal.about.stream_id] = journal
        self.touch(journal)

    def touch(self, journal: Journal) -> None:
        """There is something to write."""
        if self._journals.get(journal.about.stream_id) is journal:
            self._changed[journal] = None
            self._news.set()

    def touch_all(self) -> None:
        """What is not written again expires."""
        for journal in self._journals.values():
            self.touch(journal)

    def remove(self, journal: Journal) -> None:
        """Writes no more of it, and leaves Redis as it is."""
        if self._journals.get(journal.about.stream_id) is journal:
            del self._journals[journal.about.stream_id]
        self._changed.pop(journal, None)

    async def write(self, journal: Journal) -> bool:
        """Writes one journal now; False when the stream has another home. Raises RedisError."""
        reply = await self._append.run(self._redis, self._keys(journal.about.stream_id), *self._news_of(journal))
        return reply == b"ok"

    async def write_changed(self) -> None:
        """Raises RedisError; what was to be written then still is."""
        journals = list(self._changed)
        lasts = [journal.log.last for journal in journals]
        self._changed.clear()
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for journal in journals:
                    self._append.queue(pipeline, self._keys(journal.about.stream_id), *self._news_of(journal))
                replies = await pipeline.execute(raise_on_error=False)
        except AWAY:
            for journal in journals:
                self.touch(journal)
            raise
        for journal, last, reply in zip(journals, lasts, replies, strict=True):
            self._settle(journal, last, reply)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            await self._append.load(self._redis)

    async def keep_writing(self) -> None:
        """A task."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self.write_changed()
            except AWAY:
                await asyncio.sleep(_PAUSE_S)
            await asyncio.sleep(_PACE_S)

    def _settle(self, journal: Journal, last: int, reply: Any) -> None:
        if reply == b"moved":
            self.remove(journal)
            self._lose(journal.about.stream_id)
        elif isinstance(reply, bytes) and journal.is_over:
            self.remove(journal)
        elif reply == b"ok":
            journal.described.set()
            journal.written = max(last, journal.written)
        else:
            if reply == b"absent":
                journal.forget_written()
            self.touch(journal)

    def _news_of(self, journal: Journal) -> Sequence[Any]:
        """Arguments of the script."""
        first, frames = journal.unwritten()
        ttl_ms = 1 if journal.is_over else round((journal.about.keep_s + self._spare_s) * 1000)
        about = "" if journal.described.is_set() else journal.about.dump()
        progress = journal.progress
        return (self._router, ttl_ms, journal.log.first, progress.version, progress.dump(), about, first, *frames)


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels tasks that call Redis until they end: its client uses `asyncio.wait_for`, which may swallow a cancel on Python 3.11."""
    while pending := {task for task in tasks if not task.done()}:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_END_S)

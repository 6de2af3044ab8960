"""Runs Lua scripts on Redis: each within a deadline, and none for a moment after one has failed, so that nothing ever waits long.

All that a router asks goes out on one line at once, and Redis runs it in the order of asking; each script is a command of its own, with its
own reply, its own error and its own deadline. One timer watches over the deadlines of all. A line on which one was missed gets no new
commands: what else flies there has its own time left, and what is asked next finds a new line, since the old one may be dead.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from hiredis import ReplyError
from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from router.errors import StartFailed
from router.redis.line import Asked, Command, Line, open_line

_START_S = 5.0
_REST_S = 0.1
_EARLY_S = 0.001
"""Event loops call a timer as much too early."""

log = logging.getLogger("tidegate.redis")


_ELSEWHERE = ("READONLY", "MOVED", "ASK", "MASTERDOWN", "CLUSTERDOWN", "LOADING")
"""How errors begin of a Redis that writes no more, or not yet."""


def _is_elsewhere(error: str) -> bool:
    """Up to Redis 6 an error inside a script is told behind words about the script."""
    return error.startswith(_ELSEWHERE) or any(f": -{word} " in error for word in _ELSEWHERE)


class StoreRefused(StartFailed):
    """The router must not start: it could not share its limits with the others. The message says what to do."""


class RedisAway(Exception):
    """Redis did not answer in time, or not sensibly. `maybe_done`: the script was sent, so it may have run."""

    def __init__(self, cause: str, *, maybe_done: bool) -> None:
        super().__init__(f"Redis is away: {cause}")
        self.cause = cause
        self.maybe_done = maybe_done


def _read_scripts(folder: Path) -> Mapping[str, str]:
    shared = (folder / "shared.lua").read_text()
    return {path.stem: shared + path.read_text() for path in folder.glob("*.lua") if path.stem != "shared"}


def _hash(source: str) -> str:
    return hashlib.sha1(source.encode()).hexdigest()


class Scripts:
    """The scripts of a folder on one Redis; each has the folder's shared.lua before it. One may run twice when a connection is lost."""

    def __init__(self, url: str, folder: Path, *, deadline_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        timeouts = {"socket_timeout": None, "socket_connect_timeout": deadline_s}
        self._pool = ConnectionPool.from_url(url, protocol=2, retry=Retry(NoBackoff(), 0), **timeouts)
        self._deadline_s = deadline_s
        self._clock = clock
        scripts = _read_scripts(folder)
        self._names = {name: _hash(source) for name, source in scripts.items()}
        self._sources = {_hash(source): source for source in scripts.values()}
        self._line: Line | None = None
        self._lines: set[Line] = set()
        self._opening: asyncio.Task[None] | None = None
        self._waiting: list[Asked] = []
        self._timer: asyncio.TimerHandle | None = None
        self._watch_at = math.inf
        self._rests_until = 0.0
        self.is_away = False
        """Whether the last command had no answer."""

    async def load(self) -> None:
        """Proves at start that decisions will be shared. Raises StoreRefused: falling back would multiply every limit by the routers."""
        try:
            for source in self._sources.values():
                await self._ask(("SCRIPT", "LOAD", source), _START_S)
        except RedisAway as away:
            raise StoreRefused(f"Redis must be up and allow SCRIPT LOAD and EVALSHA to this router ({away.cause})") from None

    async def close(self) -> None:
        """Closes the connection; who still waits gets RedisAway."""
        self._fail(self._unanswered(), "it is closed")
        if self._timer is not None:
            self._timer.cancel()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        for line in self._lines:
            line.close()

    async def run(self, name: str, keys: Sequence[str], args: Sequence[str | int | bytes]) -> list[int]:
        """The script's integers. Raises RedisAway at the latest at the deadline, and at once while Redis is given a rest."""
        reply = await self.send(name, keys, args)
        return list(map(int, reply.split()))

    def send(self, name: str, keys: Sequence[str], args: Sequence[str | int | bytes]) -> asyncio.Future[bytes]:
        """Asks at once and does not wait: the future has the integers as text, or raises as `run` does."""
        return self._ask(("EVALSHA", self._names[name], len(keys), *keys, *args), self._deadline_s)

    def _ask(self, command: Command, within_s: float) -> asyncio.Future[bytes]:
        loop = asyncio.get_running_loop()
        asked = Asked(command, loop.create_future(), loop.time() + within_s)
        if self._clock() < self._rests_until:
            asked.reply.set_exception(RedisAway("it is given a rest", maybe_done=False))
            return asked.reply
        self._dispatch(asked)
        if asked.deadline < self._watch_at:
            self._set_timer(asked.deadline)
        return asked.reply

    def _dispatch(self, asked: Asked) -> None:
        if self._line is not None:
            self._line.ask(asked)
            return
        self._waiting.append(asked)
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._end_opening)

    async def _open(self) -> None:
        self._line = await open_line(self._pool, self)
        self._lines.add(self._line)
        self._opening = None
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            if not asked.reply.done():
                self._line.ask(asked)

    def _end_opening(self, opening: asyncio.Task[None]) -> None:
        if opening is self._opening:  # it failed
            error = None if opening.cancelled() else opening.exception()
            self._opening = None
            self._fail(self._waiting, type(error).__name__ if error else "TimeoutError")
            self._waiting.clear()

    def take(self, line: Line, asked: Asked, reply: Any) -> None:
        """From a line, which has a reply."""
        if asked.reply.done():
            return
        if not isinstance(reply, ReplyError):
            asked.reply.set_result(reply)
            self._note(away=False, cause="it answers")
        elif asked.command[0] == "EVALSHA" and str(reply).startswith("NOSCRIPT"):
            # Redis was restarted and has forgotten it; EVAL makes it known again.
            asked.command = ("EVAL", self._sources[str(asked.command[1])], *asked.command[2:])
            asked.was_sent = False
            self._dispatch(asked)
        elif _is_elsewhere(str(reply)) and not asked.was_lost:
            # Redis refused to run it: this is no longer the one that writes. Where the name leads to now is found by a new connection.
            asked.was_lost = True
            if line is self._line:
                self._line = None
            self._dispatch(asked)
        else:
            self._fail([asked], str(reply).partition(" ")[0])
            if _is_elsewhere(str(reply)) and line is self._line:
                self._line = None

    def finish(self, line: Line) -> None:
        """From a line on which nothing flies any more."""
        if line is not self._line:
            self._drop(line)

    def lose(self, line: Line) -> None:
        """From a line that was closed. Once for each command that is no fault: a connection may have been dead for long."""
        self._drop(line)
        for asked in line.flying:
            if asked.was_lost:
                self._fail([asked], "ConnectionError")
            elif not asked.reply.done():
                asked.was_lost = True
                self._dispatch(asked)

    def _drop(self, line: Line) -> None:
        self._lines.discard(line)
        if line is self._line:
            self._line = None
        line.close()

    def _watch(self) -> None:
        """A deadline has passed, perhaps of something that is answered."""
        # What is answered is read first, in the step of the event loop between these two: it may be the loop that is late.
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._judge)

    def _judge(self) -> None:
        now = asyncio.get_running_loop().time() + _EARLY_S
        for line in list(self._lines):
            late = [asked for asked in line.flying if asked.deadline <= now]
            self._fail(late, "TimeoutError")
            if late and line is self._line:
                self._line = None
            if late and len(late) == len(line.flying):
                self._drop(line)
        self._fail((asked for asked in self._waiting if asked.deadline <= now), "TimeoutError")
        self._waiting = [asked for asked in self._waiting if asked.deadline > now]
        if self._opening is not None and not self._waiting:
            self._opening.cancel()
        self._set_timer(min((asked.deadline for asked in self._unanswered()), default=math.inf))

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._watch_at = at
        self._timer = None if at == math.inf else asyncio.get_running_loop().call_at(at, self._watch)

    def _unanswered(self) -> Iterator[Asked]:
        return (asked for asked in chain(self._waiting, *(line.flying for line in self._lines)) if not asked.reply.done())

    def _fail(self, unanswered: Iterable[Asked], cause: str) -> None:
        for asked in unanswered:
            if not asked.reply.done():
                asked.reply.set_exception(RedisAway(cause, maybe_done=asked.was_sent))
                self._rests_until = self._clock() + _REST_S
                self._note(away=True, cause=cause)

    def _note(self, *, away: bool, cause: str) -> None:
        # Once for each change: a long outage is not a line for each request.
        if away is not self.is_away:
            self.is_away = away
            log.warning("Redis is %s: %s", "away" if away else "back", cause)

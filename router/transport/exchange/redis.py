"""The exchange in Redis: streams that come and go.

When Redis is away streams work as before and stay at home; their frames wait in their own logs, from which they are written afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any, Protocol

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import ResponseError

from router.errors import resume_unavailable, stream_unknown
from router.transport.exchange.journal import About, Journal, Owner, load_about
from router.transport.exchange.journals import AWAY, Journals, end_tasks
from router.transport.exchange.mailbox import Mailbox
from router.transport.exchange.presence import BEATS, Presence
from router.transport.exchange.progress import Progress, load_progress
from router.transport.exchange.rest import RELEASED, UNKNOWN, Rest
from router.transport.exchange.scripts import Script
from router.transport.frame_log import FrameLog

_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_OPEN_S = 0.5
_RETRY_S = 0.02
_PAUSE_S = 0.25
_DEADLINE_S = 3.0
_CONNECTIONS = 16
_RENEW_LEASES = 2
"""Journals without news are written this often, in leases, so that they do not expire."""

log = logging.getLogger("tidegate.transport")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A stream that has this router as its home now: its kept frames up to number `last`, and the rest of its open turns, None if lost."""

    about: About
    progress: Progress
    last: int
    frames: Sequence[bytes]
    rest: Rest | None


class Home(Protocol):
    """What has the streams of this router."""

    def release(self, stream_id: str, router: str, key: str, attempt: int) -> None:
        """Another router wants a stream, for this attempt of the caller to resume it; under `key` it waits for an answer and the rest."""

    def cancel(self, key: str, turn: int) -> None:
        """A turn whose rest is told under `key` is to be cancelled; 0 is all of them."""

    def lose(self, stream_id: str) -> None:
        """Another router has claimed a stream, because it thought this one dead."""


class RedisExchange:
    """An async context manager. `home` must be set before it is entered."""

    home: Home

    def __init__(self, url: str, *, prefix: str = "tidegate:", lease_s: float = 5.0) -> None:
        """`lease_s` is how long a router that has gone keeps its streams."""
        self.router = secrets.token_hex(8)
        self._redis = _connect(url)
        self._prefix = prefix
        self._lease_s = lease_s
        self._presence = Presence(self._redis, prefix, self.router, lease_s)
        self._mailbox = Mailbox(self._redis, self._presence.inbox(self.router), self._read)
        self._move = Script("move")
        spare_s = 2 * _RENEW_LEASES * lease_s
        self._journals = Journals(self._redis, self.router, self._keys, spare_s, self._lose)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_away = False

    async def __aenter__(self) -> RedisExchange:
        await self._beat()
        self._tasks = [asyncio.create_task(task) for task in (self._mailbox.listen(), self._keep(), self._journals.keep_writing())]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Streams that are still at home here are left in Redis, for any router to claim."""
        await end_tasks(self._tasks)
        with suppress(*AWAY):
            await self._journals.write_changed()
            await self._presence.leave()
        await self._redis.aclose()

    async def open(self, about: About, frames: FrameLog, progress: Progress) -> Journal:
        """Begins to journal a new stream. It is in Redis when this returns, or will be when Redis answers again."""
        journal = Journal(about, frames, progress, self._journals.touch)
        self._journals.add(journal)
        if not self._is_away:
            with suppress(TimeoutError):
                async with asyncio.timeout(_OPEN_S):
                    await journal.described.wait()
        return journal

    def go_on(self, about: About, frames: FrameLog, progress: Progress) -> Journal:
        """Goes on with the journal of a stream that has arrived."""
        journal = Journal(about, frames, progress, self._journals.touch)
        journal.described.set()
        journal.written = frames.last
        self._journals.add(journal)
        return journal

    def close(self, journal: Journal) -> None:
        """The stream is over, for all routers."""
        journal.is_over = True
        self._journals.touch(journal)

    async def fetch(self, stream_id: str, owner: Owner, attempt: int) -> Arrival:
        """Makes this router the stream's home, which takes as long as its old home needs to answer or to be found dead.

        Raises CallerError STREAM_UNKNOWN, or STREAM_TAKEN when that one knows a newer attempt, and RouterError RESUME_UNAVAILABLE.
        """
        while True:
            try:
                home = await self._find(stream_id, owner)
                is_there = await self._presence.is_there(home)
                if home == self.router:
                    arrival = None
                else:
                    arrival = await (self._ask(home, stream_id, attempt) if is_there else self._claim(home, stream_id))
            except AWAY:
                raise resume_unavailable() from None
            if arrival is not None:
                return arrival
            await asyncio.sleep(_RETRY_S)  # it is on its way to somewhere, or ends

    async def hand_over(self, journal: Journal, router: str, key: str) -> bool:
        """Gives a stream away with all its frames; False when it had been lost before. Raises RedisError, and may be called again then."""
        keys = self._keys(journal.about.stream_id)
        if await self._journals.write(journal):
            await self._move.run(self._redis, keys[:1], self.router, router, key)
        is_given = await self._redis.hget(keys[0], "move") == key.encode()
        await self._tell(key, "0-1", answer=RELEASED if is_given else UNKNOWN)
        self._journals.remove(journal)
        if is_given:
            self._presence.watch(router, key, partial(self.home.cancel, key, 0))
        return is_given

    async def deny(self, key: str, answer: bytes) -> None:
        """Answers who asks for a stream that it does not get: UNKNOWN, or TAKEN by a newer attempt. Raises RedisError."""
        await self._tell(key, "0-1", answer=answer)

    async def pass_on(self, router: str, key: str, number: int, frame: bytes) -> None:
        """Tells the rest's next frame, with numbers from 1; an empty one is the end. Raises RedisError, and may be called again then."""
        await self._tell(key, f"{number}-0", f=frame)
        if not frame:
            self._presence.unwatch(router, key)

    async def cancel(self, rest: Rest, turn: int) -> None:
        """Asks a former home to cancel a turn. Raises RedisError."""
        await self._mailbox.send(self._presence.inbox(rest.home), op="cancel", key=rest.key, turn=turn)

    async def finish(self, rest: Rest) -> None:
        """Nothing more is wanted of a former home."""
        self._mailbox.close(rest.key)
        self._presence.unwatch(rest.home, rest.key)
        with suppress(*AWAY):
            await self._redis.unlink(rest.key)

    async def _find(self, stream_id: str, owner: Owner) -> str:
        if not _ID.fullmatch(stream_id):
            raise stream_unknown()
        values: Any = await self._redis.hmget(self._keys(stream_id)[0], "home", "about")
        home, about = values
        if about is None or load_about(about).owner != owner:
            raise stream_unknown()
        return str(home.decode())

    async def _claim(self, home: str, stream_id: str) -> Arrival | None:
        reply = await self._move.run(self._redis, self._keys(stream_id)[:1], home, self.router, secrets.token_hex(8))
        return await self._load(stream_id, None) if reply == b"ok" else None

    async def _ask(self, home: str, stream_id: str, attempt: int) -> Arrival | None:
        rest = Rest(home, f"{self._prefix}rest:{secrets.token_hex(8)}")
        self._presence.watch(home, rest.key, rest.lose)
        wish: dict[str, str | int] = {"op": "release", "stream": stream_id, "router": self.router, "key": rest.key, "attempt": attempt}
        released = False
        try:
            await self._mailbox.open(rest.key, rest.read)
            while not rest.released.done():
                with suppress(*AWAY):  # it may have got through all the same
                    await self._mailbox.send(self._presence.inbox(home), **wish)
                await asyncio.wait({rest.released}, timeout=self._lease_s)
            released = rest.released.result()
            return await self._load(stream_id, rest) if released else None
        finally:
            if not released:
                await self.finish(rest)

    async def _load(self, stream_id: str, rest: Rest | None) -> Arrival:
        """The stream is this router's, so this is tried until it succeeds, or the stream has expired."""
        keys = self._keys(stream_id)
        while True:
            try:
                values: Any = await self._redis.hmget(keys[0], "about", "progress", "last")
                entries: Any = await self._redis.xrange(keys[1])
            except AWAY:
                await asyncio.sleep(_PAUSE_S)
                continue
            about, progress, last = values
            if about is None:
                raise stream_unknown()
            return Arrival(load_about(about), load_progress(progress), int(last), _join(entries, int(last)), rest)

    def _read(self, message: Mapping[bytes, bytes]) -> None:
        fields = {name.decode(): value.decode() for name, value in message.items()}
        match fields["op"]:
            case "release":
                self.home.release(fields["stream"], fields["router"], fields["key"], int(fields.get("attempt", 0)))  # older ones send none
            case "cancel":
                self.home.cancel(fields["key"], int(fields["turn"]))

    def _lose(self, stream_id: str) -> None:
        self.home.lose(stream_id)

    async def _keep(self) -> None:
        for beats in count(1):
            await asyncio.sleep(self._lease_s / BEATS)
            await self._beat()
            if beats % (BEATS * _RENEW_LEASES) == 0:
                self._journals.touch_all()

    async def _beat(self) -> None:
        try:
            await self._presence.beat()
        except AWAY as error:
            self._note(away=True, cause=type(error).__name__)
        else:
            self._note(away=False, cause="Redis answers")

    def _note(self, *, away: bool, cause: str) -> None:
        if away is not self._is_away:
            self._is_away = away
            log.warning("streams can%s be exchanged with other routers: %s", "not" if away else "", cause)

    async def _tell(self, key: str, position: str, **fields: bytes) -> None:
        entry: dict[Any, Any] = dict(fields)
        try:
            await self._redis.xadd(key, entry, id=position)
        except ResponseError as error:
            if "equal or smaller" not in str(error):  # else it is there from the time before
                raise
        await self._redis.pexpire(key, round(20 * self._lease_s * 1000))

    def _keys(self, stream_id: str) -> list[str]:
        key = f"{self._prefix}stream:{{{stream_id}}}"
        return [key, f"{key}:log"]


def _connect(url: str) -> Redis:
    deadlines = {"socket_timeout": _DEADLINE_S, "socket_connect_timeout": _DEADLINE_S, "timeout": _DEADLINE_S}
    return Redis.from_pool(BlockingConnectionPool.from_url(url, max_connections=_CONNECTIONS, **deadlines))


def _join(entries: Sequence[tuple[bytes, Mapping[bytes, bytes]]], last: int) -> Sequence[bytes]:
    """The frames up to the last, as far back as none lacks."""
    frames: list[bytes] = []
    for position, fields in reversed(entries):
        if int(position.split(b"-")[0]) != last - len(frames):
            break
        frames.append(fields[b"f"])
    return frames[::-1]

"""Runs the Lua scripts on Redis: each within a deadline, and none for a moment after one has failed, so that nothing ever waits long."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError

from router.errors import StartFailed
from router.quota.store import StoreAway

_CONNECTIONS = 32
_START_S = 5.0
_REST_S = 0.1

log = logging.getLogger("tidegate.redis")


class StoreRefused(StartFailed):
    """The router must not start: it could not share its limits with the others. The message says what to do."""


@dataclass(frozen=True, slots=True)
class _Script:
    source: str
    sha: str


def _read_scripts(folder: Path) -> Mapping[str, _Script]:
    shared = (folder / "shared.lua").read_text()
    sources = {path.stem: shared + path.read_text() for path in folder.glob("*.lua") if path.stem != "shared"}
    return {name: _Script(source, hashlib.sha1(source.encode()).hexdigest()) for name, source in sources.items()}


def connect(url: str, deadline_s: float) -> Redis:
    """A client that asks again only when a connection turns out to be closed, which is safe because every script is."""
    retry = Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,))
    # The deadline for answers is that of Scripts. With a `socket_timeout` the client uses asyncio.wait_for, which in Python 3.11 returns
    # what has come when it is cancelled at that moment: a turn that was cancelled, or a deadline that passed, would go on.
    timeouts = {"socket_timeout": None, "socket_connect_timeout": deadline_s}
    pool = BlockingConnectionPool.from_url(url, max_connections=_CONNECTIONS, timeout=deadline_s, retry=retry, **timeouts)
    return Redis.from_pool(pool)


class Scripts:
    """The scripts of a folder on one Redis; each has the folder's shared.lua before it."""

    def __init__(self, client: Redis, folder: Path, *, deadline_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._deadline_s = deadline_s
        self._clock = clock
        self._scripts = _read_scripts(folder)
        self._rests_until = 0.0
        self._is_away = False

    async def load(self) -> None:
        """Proves at start that decisions will be shared. Raises StoreRefused: falling back would multiply every limit by the routers."""
        try:
            async with asyncio.timeout(_START_S):
                for script in self._scripts.values():
                    await self._client.script_load(script.source)
        except (RedisError, OSError, TimeoutError) as error:
            raise StoreRefused(f"Redis must be up and allow SCRIPT LOAD and EVALSHA to this router ({type(error).__name__})") from None

    async def close(self) -> None:
        """Closes all connections."""
        await self._client.aclose()

    async def run(self, name: str, keys: Sequence[str], args: Sequence[str | int]) -> list[int]:
        """The script's integers. Raises StoreAway at the latest at the deadline, and at once while Redis is given a rest."""
        if self._clock() < self._rests_until:
            raise StoreAway(maybe_done=False)
        try:
            async with asyncio.timeout(self._deadline_s):
                reply = await self._evaluate(self._scripts[name], keys, args)
        except (RedisError, OSError, TimeoutError) as error:
            self._rests_until = self._clock() + _REST_S
            self._note(away=True, cause=f"{type(error).__name__} in {name}")
            raise StoreAway(maybe_done=True) from None
        self._note(away=False, cause="it answers")
        return reply

    def _note(self, *, away: bool, cause: str) -> None:
        # Once for each change: a long outage is not a line for each request.
        if away is not self._is_away:
            self._is_away = away
            log.warning("Redis is %s: %s", "away" if away else "back", cause)

    async def _evaluate(self, script: _Script, keys: Sequence[str], args: Sequence[str | int]) -> list[int]:
        reply: Any
        try:
            reply = await self._client.evalsha(script.sha, len(keys), *keys, *args)
        except NoScriptError:
            # Redis was restarted and has forgotten it; EVAL makes it known again.
            reply = await self._client.eval(script.source, len(keys), *keys, *args)
        return [int(number) for number in reply.split()]

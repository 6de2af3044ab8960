"""The Lua scripts of lua/, on a client or in a pipeline."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError


class Script:
    """One script."""

    def __init__(self, name: str) -> None:
        self._source = (Path(__file__).parent / "lua" / f"{name}.lua").read_text()
        self._sha = hashlib.sha1(self._source.encode()).hexdigest()

    async def run(self, redis: Redis, keys: list[str], *args: Any) -> bytes:
        """The script's reply, whether Redis knew it before or not. Raises RedisError."""
        try:
            reply: bytes = await redis.evalsha(self._sha, len(keys), *keys, *args)
        except NoScriptError:
            reply = await redis.eval(self._source, len(keys), *keys, *args)
        return reply

    def queue(self, pipeline: Any, keys: list[str], *args: Any) -> None:
        """Puts the script into a pipeline, where its reply is NoScriptError until it is loaded."""
        pipeline.evalsha(self._sha, len(keys), *keys, *args)

    async def load(self, redis: Redis) -> None:
        """Makes it known. Raises RedisError."""
        await redis.script_load(self._source)

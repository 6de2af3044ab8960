"""Running scripts: what cancels a caller stops it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from router.quota.scripts import Scripts, connect
from tests.unit.router.quota.redis_server import RedisServer

DEADLINE_S = 5.0


async def test_a_cancellation_is_never_swallowed() -> None:
    """At whichever step of the event loop it comes: while connecting, sending or reading, and although Redis answers."""
    # Not tmp_path: a unix socket's path must be short.
    with TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        (folder / "shared.lua").write_text("")
        (folder / "echo.lua").write_text("return ARGV[1]")
        server = RedisServer(folder)
        scripts = Scripts(connect(server.url, DEADLINE_S), folder, deadline_s=DEADLINE_S)
        await scripts.load()
        for steps in [*range(12)] * 3:
            task = asyncio.create_task(scripts.run("echo", (), (7,)))
            for _ in range(steps):
                await asyncio.sleep(0)
            had_answer = task.done()
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled() or had_answer
        assert await scripts.run("echo", (), (7,)) == [7]
        await scripts.close()
        server.kill()

"""Running scripts: what cancels a caller stops it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from router.quota.scripts import Scripts, connect
from tests.unit.router.quota.redis_server import RedisServer

DEADLINE_S = 5.0


async def test_a_cancellation_is_never_swallowed(server: RedisServer, tmp_path: Path) -> None:
    """At whichever step of the event loop it comes: while connecting, sending or reading, and although Redis answers."""
    (tmp_path / "shared.lua").write_text("")
    (tmp_path / "echo.lua").write_text("return ARGV[1]")
    scripts = Scripts(connect(server.url, DEADLINE_S), tmp_path, deadline_s=DEADLINE_S)
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

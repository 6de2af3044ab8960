"""`tidegate chat` at its prompt."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys

import pytest

CHAT = "import sys; from tidegate.chat import main; sys.exit(main())"


@pytest.mark.parametrize("asked", ["", "hello\n"], ids=["at once", "after a turn"])
async def test_ctrl_c_at_the_prompt_leaves(asked: str) -> None:
    """Without another key, and as quietly as Ctrl-D does."""
    terminal, inside = pty.openpty()
    command = (sys.executable, "-c", CHAT, "--target", "127.0.0.1:1")  # nobody is there, and nobody is needed
    chat = await asyncio.create_subprocess_exec(*command, stdin=inside, stdout=inside, stderr=inside, start_new_session=True)
    os.close(inside)
    try:
        async with asyncio.timeout(20):
            await read_prompt(terminal)
            if asked:
                os.write(terminal, asked.encode())
                assert "UNREACHABLE" in await read_prompt(terminal)
            chat.send_signal(signal.SIGINT)
            assert await chat.wait() == 0
    finally:
        if chat.returncode is None:
            chat.kill()
        os.close(terminal)


async def read_prompt(terminal: int) -> str:
    """What the screen shows until the next prompt."""
    shown = ""
    while not shown.endswith("> "):
        shown += (await asyncio.to_thread(os.read, terminal, 4096)).decode()
    return shown

"""The commands a newcomer runs."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import sys
from pathlib import Path

from server.stack import Stack

TIDEGATE = Path(sys.executable).with_name("tidegate")


async def test_the_demo_ends_with_its_line() -> None:
    """`tidegate up --demo` exits 0 and ends with the documented line: the answer, figures and spans of all services.

    A key of another router in the environment does not keep it from that.
    """
    code, output = await _run("up", "--demo", "--port", "0", "--http-port", "0", "--metrics-port", "0", TIDEGATE_KEY="tg_of_another")
    assert code == 0, output
    line = output.strip().splitlines()[-1]
    pattern = r"demo ok: .*Paris.* \| ttft \d+ ms \| \d+ tokens \| trace [0-9a-f]{32} \d+ spans from tidegate-client, tidegate-engine, .*"
    assert re.fullmatch(pattern, line), line


async def test_chat_streams_remembers_and_cancels_without_leaving(stack: Stack) -> None:
    """`tidegate chat`: an answer, Ctrl-C in the next ends only that one, then another answer, and Ctrl-D leaves with 0."""
    terminal, inside = pty.openpty()
    chat = await asyncio.create_subprocess_exec(
        TIDEGATE, "chat", "--target", stack.router, stdin=inside, stdout=inside, stderr=inside, start_new_session=True
    )
    os.close(inside)
    screen = await _type(terminal, "", "> ")
    screen = await _type(terminal, "What is the capital of France?\n", "Paris.")
    await _type(terminal, "Write a very long story about a river.\n", " the ")
    os.kill(chat.pid, signal.SIGINT)
    await _type(terminal, "", "[cancelled]")
    screen = await _type(terminal, "What is the capital of France?\n", "Paris")
    assert "rror" not in screen
    await _type(terminal, "", "> ")
    os.write(terminal, b"\x04")
    assert await chat.wait() == 0
    os.close(terminal)


async def _type(terminal: int, text: str, expected: str) -> str:
    """Types a line and returns what the screen showed until it shows what is expected."""
    os.write(terminal, text.encode())
    shown = ""
    async with asyncio.timeout(20):
        while expected not in shown.replace(text.strip(), "", 1):
            shown += (await asyncio.to_thread(os.read, terminal, 4096)).decode(errors="replace")
    return shown


async def _run(*arguments: str, **environment: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        str(TIDEGATE),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        stdin=asyncio.subprocess.DEVNULL,
        env=os.environ | environment,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()

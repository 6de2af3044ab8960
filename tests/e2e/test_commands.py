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
from tests.bench.waiting import until

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


async def test_killing_up_leaves_no_process(tmp_path: Path) -> None:
    """kill -9 of `tidegate up` takes along the router, Triton and its stub, and the database with its keeper."""
    ports = ("--port", "0", "--http-port", "0", "--metrics-port", "0")
    up = await asyncio.create_subprocess_exec(TIDEGATE, "up", *ports, "--store", tmp_path / "store", stdout=asyncio.subprocess.PIPE)
    assert up.stdout is not None
    try:
        async for line in up.stdout:
            if b"Tidegate is up" in line:
                break
        started = _started_by(up.pid, str(tmp_path))
    finally:
        up.kill()
        await up.wait()
    text = "\n".join(started.values())
    assert all(name in text for name in ("tritonserver", "triton_python_backend_stub", "-m router ", "router.store.embedded", "postgres"))
    await until(lambda: not any(_command(pid) == command for pid, command in started.items()), 60)


def _started_by(parent: int, folder: str) -> dict[int, str]:
    """The commands of all processes below one, and of the database, which is nobody's child, by the folder that it works in."""
    running = {int(path.name): _command(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    found, last = {parent}, 0
    while len(found) > last:
        last = len(found)
        found |= {pid for pid, command in running.items() if command and (_parent(pid) in found or folder in command)}
    return {pid: running[pid] for pid in found - {parent}}


def _parent(pid: int) -> int:
    """0 for a process that has gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _command(pid: int) -> str:
    """Empty for a process that has gone, waited for or not."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


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

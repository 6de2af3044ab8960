"""The commands a newcomer runs."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

TIDEGATE = Path(sys.executable).with_name("tidegate")


async def test_the_demo_ends_with_its_line() -> None:
    """`tidegate up --demo` exits 0 and ends with the documented line: the answer, figures and spans of all services."""
    code, output = await _run("up", "--demo", "--port", "0", "--metrics-port", "0")
    assert code == 0, output
    line = output.strip().splitlines()[-1]
    pattern = r"demo ok: .*Paris.* \| ttft \d+ ms \| \d+ tokens \| trace [0-9a-f]{32} \d+ spans from tidegate-client, tidegate-engine, .*"
    assert re.fullmatch(pattern, line), line


async def _run(*arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        TIDEGATE, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, stdin=asyncio.subprocess.DEVNULL
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()

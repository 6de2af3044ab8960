"""What the Python SDK's README and example show is run, against a router with a scripted worker."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from server.engine.base import Request
from tests.bench.whole import run_bench
from tests.bench.worker import Worker

SDK = Path(__file__).parents[2] / "clients/python"
BLOCKS = re.findall(r"^```python\n(.*?)^```", (SDK / "README.md").read_text(), re.MULTILINE | re.DOTALL)
CITY = {"name": "Paris", "population": 2100000}
TICKET = {"topic": "lost", "urgent": True, "reply": "We look for it."}


def answer(request: Request) -> Iterable[str]:
    """JSON of the type that is asked for, or text."""
    if request.guide is None:
        return ["It is", " Paris."]
    return [json.dumps(CITY if "population" in request.guide.text else TICKET)]


def run_block(source: str) -> str:
    """Runs a program; what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(source, "README.md", "exec"), {"__name__": "__main__"})
    return output.getvalue()


@pytest.mark.parametrize("at", range(len(BLOCKS)))
async def test_the_readme_does_what_it_shows(chatml: Path, at: int) -> None:
    """Each block is a whole program; only the router's address is another here."""
    async with run_bench(chatml, Worker(chatml, answer)) as router:
        assert "127.0.0.1:8500" in BLOCKS[at]
        output = await asyncio.to_thread(run_block, BLOCKS[at].replace("127.0.0.1:8500", router.target))
    assert "Paris" in output


async def test_the_example_is_a_service(chatml: Path) -> None:
    """A line of text in, a line of JSON out, on one connection after the other."""
    async with run_bench(chatml, Worker(chatml, answer)) as router:
        command = (sys.executable, str(SDK / "examples/triage.py"), router.target, "0")
        service = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert service.stdout is not None
        port = int((await service.stdout.readline()).split()[-1])
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write("mein Päckchen ist weg\n".encode())
            assert json.loads(await reader.readline()) == TICKET
            writer.close()
        service.terminate()
        await service.wait()

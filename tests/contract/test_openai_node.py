"""OpenAI's own client for Node against the HTTP door; node/suite.mjs is the suite."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from pathlib import Path

from tests.bench.tenants import make_key
from tests.bench.whole import run_bench
from tests.bench.worker import Worker
from tests.missing import missing

SOURCE = Path(__file__).parent / "node"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "tidegate/node"


async def run(*command: str, cwd: Path) -> tuple[int, str]:
    """A command's exit code and output."""
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def install() -> Path:
    """A folder with the suite and its locked package, made once for each lock."""
    if not (shutil.which("node") and shutil.which("npm")):
        missing("the Node client", "there is no node or npm on this machine")
    lock = hashlib.sha256((SOURCE / "package-lock.json").read_bytes()).hexdigest()[:16]
    folder = CACHE / lock
    if not (folder / "node_modules/openai").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCE / name, folder)
        code, output = await run("npm", "ci", "--no-audit", "--no-fund", cwd=folder)
        if code:
            missing("the Node client", f"npm could not install it: {output[-300:]}")
    shutil.copy(SOURCE / "suite.mjs", folder)
    return folder


async def test_the_suite_passes(chatml: Path) -> None:
    """Whole and streamed answers, schemas, parts, models, errors and leaving a stream."""
    folder = await install()
    async with run_bench(chatml, Worker(chatml, ["he", "llo 🔥"]), auth={}) as router:
        code, output = await run("node", "suite.mjs", router.http, await make_key(router), cwd=folder)
    assert (code, json.loads(output.splitlines()[-1])) == (0, {}), output

"""Schemathesis, which makes requests from /openapi.json that fit it and that just do not: none may end in a 5xx."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.bench.tenants import make_key
from tests.bench.whole import run_bench
from tests.bench.worker import Worker


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_no_request_made_from_the_schema_is_a_server_error(chatml: Path, tmp_path: Path) -> None:
    """Every operation, with good and bad bodies, fields and headers, and sequences of them."""
    async with run_bench(chatml, Worker(chatml, ["ok"], step_s=0.0), auth={}) as router:
        key = await make_key(router)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", "run", f"http://{router.http}/openapi.json"),
            *(
                "--header",
                f"Authorization: Bearer {key}",
                "--checks",
                "not_a_server_error",
                "--max-examples",
                "100",
                "--generation-deterministic",
                "--no-color",
            ),
            cwd=tmp_path,  # it writes files
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()

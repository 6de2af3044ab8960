"""A router in a process of its own, for tests that kill or stop it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

PROGRAM = """
import json, sys, uvloop
from router.__main__ import serve
from router.config import read_config
uvloop.run(serve(read_config(json.loads(sys.argv[1]))))
"""


@dataclass(frozen=True, slots=True)
class RouterProcess:
    """A running router, its target and where its HTTP door is, both host:port."""

    process: asyncio.subprocess.Process
    target: str
    http: str

    def send(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self.process.send_signal(number)


@asynccontextmanager
async def run_process(values: dict[str, Any], **secrets: str) -> AsyncIterator[RouterProcess]:
    """Runs a router until left, by this configuration and these variables; its model `test` is served when this yields."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | secrets
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        json.dumps(values),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        places = dict(place.split(" on ") for place in line.strip().split(", "))
        async with grpc.aio.insecure_channel(places["router ready"]) as channel:
            await _served(HealthStub(channel))
        yield RouterProcess(process, places["router ready"], places["http"])
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _served(health: Any) -> None:
    async for response in health.Watch(HealthCheckRequest(service="model/test"), timeout=10):
        if response.status == HealthCheckResponse.SERVING:
            return

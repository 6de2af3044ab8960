"""Short ways to ask a running system something."""

from __future__ import annotations

import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from prometheus_client.parser import text_string_to_metric_families
from tidegate import Client, user


async def answer(target: str, question: str, *, max_tokens: int = 24) -> str:
    """The greedy answer to one question."""
    async with Client(target, retries=0) as client, client.session() as session:
        turn = await session.start(user(question), max_output_tokens=max_tokens)
        return await turn.text()


@asynccontextmanager
async def health_of(target: str) -> AsyncIterator[Any]:
    """The health service of a router."""
    async with grpc.aio.insecure_channel(target) as channel:
        yield HealthStub(channel)


async def is_serving(target: str) -> bool:
    """Whether the router says it serves."""
    async with health_of(target) as health:
        answer: HealthCheckResponse = await health.Check(HealthCheckRequest())
        return answer.status == HealthCheckResponse.SERVING


def read_metrics(address: str) -> list[tuple[str, dict[str, str], float]]:
    """Scrapes a /metrics address: name, labels and value of every sample."""
    with urllib.request.urlopen(f"http://{address}/metrics") as page:
        families = list(text_string_to_metric_families(page.read().decode()))
    return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]


def resident_kib(pid: int) -> int:
    """Resident memory of a process, in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no such process")

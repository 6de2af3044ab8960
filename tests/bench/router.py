"""A whole router in this process, in front of scripted workers; ports are the system's choice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from tidegate import Client
from tidegate.v1.chat_service_pb2_grpc import ChatServiceStub

from router.app import App, build
from router.config import read_config
from tests.bench.waiting import until

FAST_TIMEOUTS = {"drain_s": 0.5}


@dataclass(frozen=True, slots=True)
class Router:
    """A running router."""

    app: App
    target: str

    def client(self, **options: Any) -> Client:
        """The Python client, connected to it."""
        return Client(self.target, **options)

    @asynccontextmanager
    async def stub(self) -> AsyncIterator[ChatServiceStub]:
        """The bare generated stub, for what the client would not send."""
        async with grpc.aio.insecure_channel(self.target, options=(("grpc.max_send_message_length", -1),)) as channel:
            yield ChatServiceStub(channel)  # type: ignore[no-untyped-call]

    def turns_in_lanes(self) -> int:
        """Turns that run on any worker, as the router sees it."""
        return sum(lane.running for lane in self.app.workers)


@asynccontextmanager
async def run_router(folder: Path, *workers: str, wait_up: bool = True, **sections: dict[str, Any]) -> AsyncIterator[Router]:
    """Runs a router whose only model, `test`, has these workers; `sections` are parts of the configuration."""
    timeouts = FAST_TIMEOUTS | sections.pop("timeouts", {})
    model = {"name": "test", "path": str(folder), "workers": list(workers) or ["127.0.0.1:1"], **sections.pop("model", {})}
    app = build(read_config({"listen": "127.0.0.1:0", "models": [model], "timeouts": timeouts, **sections}))
    async with app.running() as endpoints:
        if wait_up:
            await until(lambda: all(lane.up for lane in app.workers))
        yield Router(app, endpoints.grpc)

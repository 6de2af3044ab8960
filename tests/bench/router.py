"""A whole router in this process, in front of scripted workers; ports are the system's choice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
from tidegate import Client
from tidegate.v1.chat_service_pb2_grpc import ChatServiceStub

from router.app import App, build
from router.config import read_config
from tests.bench.postgres import migrated_database
from tests.bench.waiting import until

FAST_TIMEOUTS = {"drain_s": 0.5}


@dataclass(frozen=True, slots=True)
class Router:
    """A running router."""

    app: App
    target: str
    http: str

    def client(self, **options: Any) -> Client:
        """The Python client, connected to it. It shows what the router does: nothing is tried again or resumed unless asked for."""
        return Client(self.target, **{"retries": 0, "resume_for": 0.0, **options})

    @asynccontextmanager
    async def stub(self) -> AsyncIterator[ChatServiceStub]:
        """The bare generated stub, for what the client would not send."""
        async with stub_at(self.target) as stub:
            yield stub

    def turns_in_lanes(self) -> int:
        """Turns that run on any worker, as the router sees it."""
        return sum(lane.running for lane in self.app.workers)

    def turns_begun(self) -> float:
        """Turns of which the router has had a token."""
        return self.app.registry.get_sample_value("tidegate_time_to_first_token_seconds_count", {"model": "test"}) or 0


@asynccontextmanager
async def stub_at(target: str) -> AsyncIterator[ChatServiceStub]:
    """The generated stub of the router at `target`."""
    async with grpc.aio.insecure_channel(target, options=(("grpc.max_send_message_length", -1),)) as channel:
        yield ChatServiceStub(channel)  # type: ignore[no-untyped-call]


@asynccontextmanager
async def run_router(
    folder: Path, *workers: str, small: Sequence[str] = (), wait_up: bool = True, **sections: Any
) -> AsyncIterator[Router]:
    """Runs a router whose model `test` has these workers; `sections` are parts of the configuration. With workers of its own there is a
    second model, `small`.

    Callers need no credentials and the database is its own, unless `sections` say otherwise.
    """
    async with own_store(sections.pop("store", {})) as store, AsyncExitStack() as stack:
        app = build(read_config(values_of(folder, *workers, small=small, store=store, **sections)))
        endpoints = await stack.enter_async_context(app.running())
        if wait_up:
            await until(lambda: sum(worker.up for worker in app.workers) == len({*workers, *small}))
        yield Router(app, endpoints.grpc, endpoints.http)


def values_of(folder: Path, *workers: str, small: Sequence[str] = (), **sections: Any) -> dict[str, Any]:
    """The configuration of `run_router`."""
    timeouts = FAST_TIMEOUTS | sections.pop("timeouts", {})
    model = {
        "name": "test",
        "path": str(folder),
        "workers": list(workers) or ["127.0.0.1:1"],
        "shared_prefixes": True,
        **sections.pop("model", {}),
    }
    models = [model, *([{"name": "small", "path": str(folder), "workers": list(small), "shared_prefixes": True}] if small else [])]
    http = {"listen": "127.0.0.1:0", **sections.pop("http", {})}
    return {"listen": "127.0.0.1:0", "models": models, "timeouts": timeouts, "http": http, "auth": {"anonymous": True}, **sections}


@asynccontextmanager
async def own_store(given: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """A `[store]` section: a folder and a database of its own, where they are not given."""
    async with AsyncExitStack() as stack:
        folder = given.get("folder") or stack.enter_context(TemporaryDirectory())
        dsn = given.get("dsn") or await stack.enter_async_context(migrated_database())
        yield {"folder": folder, "dsn": dsn}

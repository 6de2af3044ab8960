"""The whole system on one machine: model, Triton, router and a trace collector. Used by `tidegate up`, the demo and the e2e tests.

Everything it starts is what a deployment runs, as processes of their own; only the trace collector lives in the caller's process. Killed
with -9, that process takes along what it started; the database ends with the router.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from server.assets.catalogue import DEFAULT_MODEL
from server.assets.store import resolve_shown
from server.build import TEMPLATE, render_repository
from server.collector import Collector
from server.die_with_parent import bind_to_parent
from server.launch import Triton, TritonOptions, ask_to_exit

START_S = 30.0


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What to run: a model (name, folder, .gguf or Hugging Face id) and the engine's profile. Port 0 takes a free one.

    `worker` is the gRPC address of a Triton that runs already; then none is started. `engine` overrides values of config.pbtxt, and
    `router` is TOML appended to the router's configuration. `store` is the folder of the router's data; empty: they go with the stack.
    """

    model: str = DEFAULT_MODEL
    profile: str = "fast"
    port: int = 0
    metrics_port: int = 0
    worker: str = ""
    store: str = ""
    engine: Mapping[str, str] = field(default_factory=dict)
    router: str = ""
    http_port: int = 0


@dataclass(frozen=True, slots=True)
class Stack:
    """A running system; `repository` is the model repository that was rendered for its Triton."""

    router: str
    metrics: str
    http: str
    worker: str
    config: Path
    triton: Triton | None
    router_process: asyncio.subprocess.Process
    collector: Collector
    repository: Path


class StackFailed(Exception):
    """A part of the stack did not start or ended; the message says which and why."""


@asynccontextmanager
async def run_stack(options: StackOptions) -> AsyncIterator[Stack]:
    """Starts everything and stops it in reverse order. Raises StackFailed, LaunchError or AssetError."""
    folder = await asyncio.to_thread(resolve_shown, options.model)
    async with AsyncExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-")))
        collector = Collector.start("127.0.0.1")
        stack.callback(collector.close)
        repository = _render(options, folder, work, collector.url)
        triton = None if options.worker else await Triton.start(TritonOptions(repository, trace_url=collector.url))
        if triton:
            stack.push_async_callback(triton.stop)
        worker = triton.endpoints.grpc if triton else options.worker
        config = work / "router.toml"
        config.write_text(router_config(options, folder, worker, collector.url, options.store or f"{work}/store"), encoding="utf-8")
        process, places = await _start_router(config, stack)
        await _wait_serving(places["router ready"])
        yield Stack(places["router ready"], places["metrics"], places["http"], worker, config, triton, process, collector, repository)


def router_config(options: StackOptions, folder: Path, worker: str, trace_url: str, store: str) -> str:
    """The router's TOML for this stack. Callers on this machine need no key; a worker that runs already is reached as it is."""
    return f"""\
listen = "127.0.0.1:{options.port}"

[[models]]
name = {_quote(model_name(folder))}
path = {_quote(str(folder))}
workers = [{_quote(worker)}]
shared_prefixes = true

[worker_link]
plaintext_anywhere = {str(bool(options.worker)).lower()}

[store]
folder = {_quote(store)}

[auth]
anonymous = true

[http]
listen = "127.0.0.1:{options.http_port}"

[telemetry]
otlp_endpoint = {_quote(trace_url)}
metrics_listen = "127.0.0.1:{options.metrics_port}"

{options.router}
"""


def model_name(folder: Path) -> str:
    """What callers call the model of a folder: its name, with what no model's name may have replaced."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name)[:128]


def _quote(text: str) -> str:
    """A TOML string. JSON's are ones, but for DEL, which TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _render(options: StackOptions, folder: Path, work: Path, trace_url: str) -> Path:
    values = {
        "engine": "openvino",
        "model_dir": str(folder),
        "model_name": model_name(folder),
        "profile": options.profile,
        "otlp_url": trace_url,
        **options.engine,
    }
    return render_repository(TEMPLATE, work / "model_repository", values)


async def _start_router(config: Path, stack: AsyncExitStack) -> tuple[asyncio.subprocess.Process, dict[str, str]]:
    """The process, and where it says that it listens, by its words for that."""
    process = await asyncio.create_subprocess_exec(
        *bind_to_parent((sys.executable, "-m", "router", str(config))),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in the terminal is for this process, which stops the parts in order
    )
    stack.push_async_callback(_stop_process, process)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            line = (await process.stdout.readline()).decode()
    except TimeoutError:
        raise StackFailed("the router did not start in time") from None
    if not line.startswith("router ready on "):
        raise StackFailed("the router did not start; see its message above (its folder of data is another with --store)")
    return process, dict(place.split(" on ") for place in line.strip().split(", "))


async def _stop_process(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        ask_to_exit(process.pid)
    await process.wait()


async def _wait_serving(router: str) -> None:
    """Waits until the router has its worker."""
    async with grpc.aio.insecure_channel(router) as channel:
        watch = HealthStub(channel).Watch(HealthCheckRequest(), timeout=START_S)  # type: ignore[attr-defined]  # the stubs lack it
        try:
            async for response in watch:
                if response.status == HealthCheckResponse.SERVING:
                    return
        except grpc.aio.AioRpcError:
            raise StackFailed("the router found no worker in time") from None

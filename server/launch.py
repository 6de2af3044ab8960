"""Start a tritonserver, wait until it serves, and leave nothing behind when it goes: `tidegate serve`.

Theory of operation. Triton and the Python stubs it starts form a process group of their own, begun by
`die_with_parent.py`, so that a launcher killed with -9 takes Triton along. One task, `_supervise`, lives as long as Triton:
once Triton has exited it kills what is left of the group and removes its shared memory, which a prefix tells from that of
other servers. Whoever waits, waits for that task, so an exit code is only seen when everything else is gone. Nothing is
restarted here.

An orderly stop cannot be left to Triton: with a request unfinished after `--exit-timeout-secs` it says that it exits
immediately, and hangs (2.51). So `stop` kills the group a second later.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from server import die_with_parent
from server.installation import LaunchError, find_installation
from server.ports import reserve_ports
from server.triton_log import LogPipe, LogTail, log_line

READY_POLL_S = 0.1
# Triton looks only once a second whether its models have gone.
EXIT_GRACE_S = 1.0
LOG_DRAIN_S = 1.0
SHARED_MEMORY = Path("/dev/shm")
INTERRUPTED = 130

logger = logging.getLogger("tidegate.serve")


@dataclass(frozen=True, slots=True)
class TritonOptions:
    """How to run Triton on a rendered model repository; port 0 takes a free one, times are in seconds.

    `trace_url` is an OTLP/HTTP endpoint. Triton then traces the requests that carry a `traceparent`, and no others.
    """

    repository: Path
    binary: Path | None = None
    host: str = "127.0.0.1"
    grpc_port: int = 0
    http_port: int = 0
    metrics_port: int = 0
    trace_url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    ready_timeout_s: float = 120.0
    stop_timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where a Triton listens, each as ``host:port``."""

    grpc: str
    http: str
    metrics: str


class TritonFailed(LaunchError):
    """Triton was not ready: TRITON_EXITED, with its `exit_code`, or TRITON_NOT_READY in time. `log` holds its last lines."""

    def __init__(self, reason: str, message: str, log: Sequence[str], exit_code: int | None = None) -> None:
        super().__init__(reason, "\n  ".join([message, *log]))
        self.log = tuple(log)
        self.exit_code = exit_code


class Triton:
    """A tritonserver that is ready; as an async context manager it is stopped at the end. Made by `start`."""

    def __init__(self, options: TritonOptions, ports: Sequence[int], on_log: Callable[[str], None]) -> None:
        grpc, http, metrics = (f"{options.host}:{port}" for port in ports)
        self.endpoints = Endpoints(grpc, http, metrics)
        self._options = options
        self._on_log = on_log
        self._tail = LogTail()
        self._segments = f"tidegate-{uuid.uuid4().hex[:12]}-"

    @classmethod
    async def start(cls, options: TritonOptions, *, on_log: Callable[[str], None] = log_line) -> Self:
        """Start Triton and return when it is ready; `on_log` gets every line it writes and must not raise.

        Triton is killed when the calling thread ends, so the event loop belongs in a thread that outlives it.

        Raises:
            LaunchError: PORT_IN_USE, or what `find_installation` raises.
            TritonFailed: it exited, or was not ready within `ready_timeout_s`.
        """
        ports = (options.grpc_port, options.http_port, options.metrics_port)
        with reserve_ports(options.host, ports) as reserved:
            triton = cls(options, reserved, on_log)
            await triton._spawn()
            try:
                await triton._wait_until_ready()
            except BaseException:
                await triton.stop()
                raise
        return triton

    @property
    def pid(self) -> int:
        """The process id of tritonserver, which is also that of its process group."""
        return self._process.pid

    async def wait(self) -> int:
        """Return Triton's exit code, minus the signal if it was killed, once nothing of it is left."""
        return await asyncio.shield(self._exit)

    async def stop(self) -> int:
        """Ask Triton to exit, kill it if it has not within `stop_timeout_s`, and return as `wait` does."""
        try:
            if not self._exit.done():
                self._process.terminate()
                await asyncio.wait({self._exit}, timeout=self._options.stop_timeout_s + EXIT_GRACE_S)
        finally:
            if not self._exit.done():
                logger.warning("Triton did not stop in time and is killed: pid %d", self.pid)
                self._kill_group()
        return await self.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _spawn(self) -> None:
        installation = await asyncio.to_thread(find_installation, self._options.binary)
        environment = {**os.environ, **installation.environment, **self._options.env}
        command = [str(installation.binary), *installation.arguments, *self._arguments()]
        # A pipe of our own: asyncio sees no exit while a child holds one of its pipes open, and the stubs inherit them.
        read_end, write_end = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-IS", die_with_parent.__file__, str(os.getpid())),
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=asyncio.subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        self._exit = asyncio.create_task(self._supervise(read_end))

    def _arguments(self) -> list[str]:
        options = self._options
        return [
            f"--model-repository={options.repository}",
            # Our configurations are complete; completing them would load every model.py twice.
            "--disable-auto-complete-config",
            *_listen("grpc", self.endpoints.grpc),
            *_listen("http", self.endpoints.http),
            *_listen("metrics", self.endpoints.metrics),
            f"--exit-timeout-secs={math.ceil(options.stop_timeout_s)}",
            f"--backend-config=python,shm-region-prefix-name={self._segments}",
            *(trace_arguments(options.trace_url) if options.trace_url else ()),
        ]

    async def _supervise(self, log: int) -> int:
        loop = asyncio.get_running_loop()
        transport, pipe = await loop.connect_read_pipe(lambda: LogPipe(self._take_line), os.fdopen(log, "rb"))
        code = await self._process.wait()
        self._kill_group()
        await asyncio.wait({pipe.closed}, timeout=LOG_DRAIN_S)
        transport.close()
        remove_segments(self._segments)
        logger.log(logging.WARNING if code else logging.INFO, "Triton exited with code %d: pid %d", code, self.pid)
        return code

    def _take_line(self, line: str) -> None:
        self._tail.add(line)
        self._on_log(line)

    async def _wait_until_ready(self) -> None:
        timeout_s = self._options.ready_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                while not self._exit.done():
                    if await answers_ready(self.endpoints.http):
                        return
                    await asyncio.wait({self._exit}, timeout=READY_POLL_S)
        except TimeoutError:
            message = f"Triton was not ready after {timeout_s:g} s"
            raise TritonFailed("TRITON_NOT_READY", message, self._tail.lines()) from None
        code = self._exit.result()
        raise TritonFailed("TRITON_EXITED", f"Triton exited with code {code}", self._tail.lines(), code)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


async def answers_ready(address: str) -> bool:
    """Whether the Triton whose HTTP port is at ``host:port`` says that it and all its models are ready."""
    host, _, port = address.rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    try:
        writer.write(f"GET /v2/health/ready HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        return b" 200 " in await reader.readline()
    except OSError:
        return False
    finally:
        writer.close()


def trace_arguments(url: str) -> list[str]:
    """Return the arguments that make Triton send spans to an OTLP/HTTP endpoint, for requests that carry a trace context."""
    settings = (
        "mode=opentelemetry",
        f"opentelemetry,url={url}",
        "opentelemetry,resource=service.name=triton",
        "opentelemetry,bsp_schedule_delay=500",
        "level=TIMESTAMPS",
        "rate=0",
        "count=-1",
    )
    return [f"--trace-config={setting}" for setting in settings]


def remove_segments(prefix: str, folder: Path = SHARED_MEMORY) -> None:
    """Remove the shared memory that a killed Triton left, which is what begins with its prefix."""
    for segment in folder.glob(f"{prefix}*"):
        segment.unlink(missing_ok=True)


async def serve(options: TritonOptions) -> int:
    """Run Triton until it exits or SIGINT or SIGTERM comes; returns its exit status. A second signal kills it."""
    run = asyncio.create_task(_run(options))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, run.cancel)
    await asyncio.wait({run})
    return INTERRUPTED if run.cancelled() else run.result()


async def _run(options: TritonOptions) -> int:
    async with await Triton.start(options) as triton:
        at = triton.endpoints
        logger.info("Triton is ready: gRPC %s, HTTP %s, metrics %s", at.grpc, at.http, at.metrics)
        # Only `serve` cancels this, on a signal; what it wants is the end of Triton, and then the exit code.
        with suppress(asyncio.CancelledError):
            await triton.wait()
    code = await triton.wait()
    return code if code >= 0 else 128 - code


def _listen(protocol: str, address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    return f"--{protocol}-address={host}", f"--{protocol}-port={port}"

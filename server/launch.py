"""Start a tritonserver, wait until it serves, and leave nothing behind when it goes: `tidegate serve`.

Theory of operation. Triton and the Python stubs it starts form a process group of their own, begun by `die_with_parent.py`, so that a
launcher killed with -9 takes Triton along. One task, `_supervise`, lives as long as Triton: once Triton has exited it kills what is left of
the group and removes its shared memory, which a prefix tells from that of other servers. Whoever waits, waits for that task, so an exit
code is only seen when everything else is gone. Nothing is restarted here: when a stub dies Triton is ended, and who supervises this starts
it anew.

An orderly stop cannot be left to Triton: with a request unfinished after `--exit-timeout-secs` it says that it exits
immediately, and hangs (2.51). So `stop` kills the group a second later.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tidegate.parser import Parser

from server import exposure
from server.assets.catalogue import DEFAULT_MODEL
from server.assets.folder import AssetError
from server.assets.store import resolve_shown
from server.build import TEMPLATE, UnknownValue, render_repository
from server.die_with_parent import bind_to_parent
from server.installation import PACKAGE_ROOT, LaunchError, find_installation
from server.options import PROFILES
from server.ports import reserve_ports
from server.settings import name_and_value
from server.stub_watch import watch_stubs
from server.triton_log import LogPipe, LogTail, log_line
from server.triton_options import Endpoints, TritonOptions, build_arguments

__all__ = ["Endpoints", "LaunchError", "Triton", "TritonFailed", "TritonOptions", "main", "serve"]

READY_POLL_S = 0.1
# Triton looks only once a second whether its models have gone.
EXIT_GRACE_S = 1.0
LOG_DRAIN_S = 1.0
SHARED_MEMORY = Path("/dev/shm")
INTERRUPTED = 130

logger = logging.getLogger("tidegate.serve")


class TritonFailed(LaunchError):
    """Triton was not ready: TRITON_EXITED, with its `exit_code`, or TRITON_NOT_READY in time. `log` holds its last lines."""

    def __init__(self, reason: str, message: str, log: Sequence[str], exit_code: int | None = None) -> None:
        super().__init__(reason, "\n  ".join([message, *log]))
        self.log = tuple(log)
        self.exit_code = exit_code


class Triton:
    """A tritonserver that is ready, at `endpoints`; as an async context manager it is stopped at the end. Made by `start`."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        log: int,
        endpoints: Endpoints,
        *,
        segments: str,
        on_log: Callable[[str], None],
        stop_timeout_s: float,
    ) -> None:
        self.endpoints = endpoints
        self._process = process
        self._segments = segments
        self._on_log = on_log
        self._stop_timeout_s = stop_timeout_s
        self._tail = LogTail()
        self._exit = asyncio.create_task(self._supervise(log))
        self._stubs: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, options: TritonOptions, *, on_log: Callable[[str], None] = log_line) -> Self:
        """Start Triton and return when it is ready; `on_log` gets every line it writes and must not raise.

        Triton is killed when the thread that called this ends, not only when its process does.

        Raises:
            LaunchError: PORT_IN_USE, or what `find_installation` raises.
            TritonFailed: it exited, or was not ready within `ready_timeout_s`.
        """
        ports = (options.grpc_port, options.http_port, options.metrics_port)
        with reserve_ports(options.host, ports) as reserved:
            endpoints = Endpoints(*(f"{options.host}:{port}" for port in reserved))
            triton = await cls._spawn(options, endpoints, on_log)
            try:
                await triton._wait_until_ready(options.ready_timeout_s)
                triton._stubs = asyncio.create_task(watch_stubs(triton.pid, triton._kill_group))
            except BaseException:
                await triton.stop()
                raise
        return triton

    @property
    def pid(self) -> int:
        """The process id of tritonserver, which is also that of its process group."""
        return self._process.pid

    async def wait(self) -> int:
        """Return Triton's exit code, or minus the signal that killed it, once the rest of its group has been killed too."""
        return await asyncio.shield(self._exit)

    async def stop(self) -> int:
        """Ask Triton to exit, kill it if it has not within `stop_timeout_s`, and return as `wait` does."""
        self._stop_watching()  # stubs end before Triton does
        try:
            if self._process.returncode is None:
                ask_to_exit(self.pid)
            await asyncio.wait({self._exit}, timeout=self._stop_timeout_s + EXIT_GRACE_S)
        finally:
            if not self._exit.done():
                logger.warning("Triton did not stop in time and is killed: pid %d", self.pid)
                self._kill_group()
            await asyncio.wait({self._exit})
        return self._exit.result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @classmethod
    async def _spawn(cls, options: TritonOptions, endpoints: Endpoints, on_log: Callable[[str], None]) -> Self:
        installation = await asyncio.to_thread(find_installation, options.binary)
        segments = f"tidegate-{uuid.uuid4().hex[:12]}-"
        arguments = [*installation.arguments, *build_arguments(options, endpoints, segments)]
        environment = {**os.environ, **installation.environment, **options.env}
        process, log = await spawn_group((str(installation.binary), *arguments), environment)
        return cls(process, log, endpoints, segments=segments, on_log=on_log, stop_timeout_s=options.stop_timeout_s)

    async def _supervise(self, log: int) -> int:
        loop = asyncio.get_running_loop()
        transport, pipe = await loop.connect_read_pipe(lambda: LogPipe(self._take_line), os.fdopen(log, "rb"))
        code = await self._process.wait()
        self._stop_watching()
        self._kill_group()
        await asyncio.wait({pipe.closed}, timeout=LOG_DRAIN_S)
        transport.close()
        remove_segments(self._segments)
        logger.log(logging.WARNING if code else logging.INFO, "Triton exited with code %d: pid %d", code, self.pid)
        return code

    def _take_line(self, line: str) -> None:
        self._tail.add(line)
        self._on_log(line)

    async def _wait_until_ready(self, timeout_s: float) -> None:
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

    def _stop_watching(self) -> None:
        if self._stubs:
            self._stubs.cancel()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


async def spawn_group(command: Sequence[str], environment: Mapping[str, str]) -> tuple[asyncio.subprocess.Process, int]:
    """Start a command in a process group of its own that dies with this thread; returns it and the read end of its output."""
    # A pipe of our own: asyncio sees no exit while a child holds one of its pipes open, and the stubs inherit them.
    read_end, write_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *bind_to_parent(command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            env=environment,
            cwd=PACKAGE_ROOT,
            start_new_session=True,
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    return process, read_end


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
        # Only `serve` cancels this, on a signal: what it wants is the end of Triton, and then its exit code.
        with suppress(asyncio.CancelledError):
            await triton.wait()
    return _to_status(await triton.wait())


def ask_to_exit(pid: int) -> None:
    """Sends SIGTERM to a process of asyncio's that has not been waited for."""
    # Not its `terminate()`: it looks first whether the process has exited, and then asyncio, which looks too, finds no exit code (255).
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def _to_status(code: int) -> int:
    return code if code >= 0 else 128 - code


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``tidegate serve``; return the exit status, which is Triton's."""
    arguments = _parse(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-") as run_folder:
            return asyncio.run(serve(_prepare(arguments, Path(run_folder))))
    except (AssetError, exposure.ExposureInvalid, LaunchError, UnknownValue) as error:
        print(f"{error.reason}: {error}", file=sys.stderr)
        return _to_status(error.exit_code or 1) if isinstance(error, TritonFailed) else 1


def _prepare(arguments: argparse.Namespace, run_folder: Path) -> TritonOptions:
    values = {"model_dir": str(resolve_shown(arguments.model)), "profile": arguments.profile, **dict(arguments.set)}
    if arguments.trace_url:
        values["otlp_url"] = arguments.trace_url
    if arguments.lane_credential:
        values["lane_credential"] = str(arguments.lane_credential.absolute())
    return TritonOptions(
        repository=render_repository(arguments.repository, run_folder / "models", values),
        binary=arguments.triton,
        grpc_port=arguments.grpc_port,
        http_port=arguments.http_port,
        metrics_port=arguments.metrics_port,
        trace_url=arguments.trace_url,
        host=arguments.host,
        tls=exposure.read_tls(arguments),
    )


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="tidegate serve", description="Run Triton with a model until it is told to stop.")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="name, folder, .gguf file or Hugging Face id")
    parser.add_argument("--profile", default="fast", choices=PROFILES)
    parser.add_argument("--set", action="append", default=[], type=name_and_value, metavar="NAME=VALUE", help="another placeholder")
    parser.add_argument("--repository", type=Path, default=TEMPLATE, help="template to render")
    parser.add_argument("--triton", type=Path, metavar="PATH", help="tritonserver to run; found by itself by default")
    parser.add_argument("--trace-url", metavar="URL", help="OTLP/HTTP endpoint, such as http://127.0.0.1:4318/v1/traces")
    for name, port in (("grpc", 8001), ("http", 8000), ("metrics", 8002)):
        parser.add_argument(f"--{name}-port", type=int, default=port, help=f"{port} by default; 0 takes a free one")
    exposure.add_arguments(parser)
    return parser.parse_args(argv)

"""Other gateways, each in a venv of its own: `make bench-peers` installs them, `make bench-router` runs them."""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
import venv
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from server.ports import reserve_ports

HOME = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "tidegate/peers"
START_S = 90.0
LITELLM_CONFIG = """\
model_list:
  - model_name: mock
    litellm_params: {{model: openai/mock, api_base: "{upstream}/v1", api_key: none}}
litellm_settings: {{telemetry: false, num_retries: 0}}
general_settings: {{master_key: {key}}}
"""


class PeerFailed(Exception):
    """A peer did not start; the message names it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a peer runs: its upstream, its port, a folder that it may write to, and the key that callers will send."""

    upstream: str
    port: int
    work: Path
    key: str


@dataclass(frozen=True, slots=True)
class RunningPeer:
    """How to reach it."""

    url: str
    pid: int
    key: str


@dataclass(frozen=True, slots=True)
class Peer:
    """A gateway: what pip installs, and the arguments of its command."""

    name: str
    package: str
    arguments: Callable[[Place], Sequence[str]]
    environment: Mapping[str, str] = field(default_factory=dict)
    home: Path = HOME

    @property
    def folder(self) -> Path:
        """Its venv."""
        return self.home / self.name

    def is_installed(self) -> bool:
        """Whether `make bench-peers` has run."""
        return (self.folder / "bin" / self.name).exists()

    async def install(self) -> None:
        """Makes its venv. Raises PeerFailed."""
        await asyncio.to_thread(venv.create, self.folder, with_pip=True, clear=True)
        pip = (str(self.folder / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", self.package)
        process = await asyncio.create_subprocess_exec(*pip)
        if await process.wait():
            raise PeerFailed(f"{self.name} could not be installed")

    @asynccontextmanager
    async def run(self, upstream: str) -> AsyncIterator[RunningPeer]:
        """Runs it in front of `upstream`. Raises PeerFailed."""
        with tempfile.TemporaryDirectory() as work, reserve_ports("127.0.0.1", (0,)) as (port,):
            place = Place(upstream, port, Path(work), f"sk-{secrets.token_hex(16)}")
            command = [str(self.folder / "bin" / self.name), *self.arguments(place)]
            async with run_process(command, environment=self.environment) as process:
                await self._wait_until_up(process, port)
                yield RunningPeer(f"http://127.0.0.1:{port}", process.pid, place.key)

    async def _wait_until_up(self, process: asyncio.subprocess.Process, port: int) -> None:
        try:
            async with asyncio.timeout(START_S):
                while process.returncode is None:
                    if await _answers(port):
                        return
                    await asyncio.sleep(0.25)
        except TimeoutError:
            raise PeerFailed(f"{self.name} did not answer in {START_S:g} s") from None
        raise PeerFailed(f"{self.name} ended with code {process.returncode}")


def _vllm_router(place: Place) -> Sequence[str]:
    return ("--worker-urls", place.upstream, "--host", "127.0.0.1", "--port", str(place.port), "--policy", "round_robin")


def _litellm(place: Place) -> Sequence[str]:
    """It refuses to start without a key."""
    config = place.work / "litellm.yaml"
    config.write_text(LITELLM_CONFIG.format(upstream=place.upstream, key=place.key))
    return ("--config", str(config), "--host", "127.0.0.1", "--port", str(place.port), "--num_workers", "1")


PEERS = (
    Peer("vllm-router", "vllm-router==0.1.17", _vllm_router),
    Peer("litellm", "litellm[proxy]", _litellm, {"LITELLM_LOG": "ERROR"}),
)


@asynccontextmanager
async def run_process(
    command: Sequence[str], *, pipe: bool = False, environment: Mapping[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that is ended when left; its output is dropped unless piped."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **(environment or {})},
        stdout=asyncio.subprocess.PIPE if pipe else asyncio.subprocess.DEVNULL,
        stderr=None if pipe else asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _answers(port: int) -> bool:
    """Whether it speaks HTTP, whatever it says."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health/liveliness HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        line = await asyncio.wait_for(reader.readline(), 5)
        writer.close()
    except (OSError, TimeoutError):
        return False
    return line.startswith(b"HTTP/1.1 ")


def main() -> int:
    """Installs all peers."""
    for peer in PEERS:
        asyncio.run(peer.install())
        print(f"{peer.name} is in {peer.folder}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

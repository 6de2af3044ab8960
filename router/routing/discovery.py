"""Where the workers of a model are: sources of address sets, and what is believed of them.

A source tells all addresses each time, as often as it likes, and raises DiscoveryFailed when it cannot. `follow` makes of it what the table
is given: a set only when it has changed, a moment later so that many changes are one, never an empty one, and never more than a table
should hold. What was known last stays known while a source fails or tells of nothing. Whether workers really are there their lanes say.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from pathlib import Path
from typing import Protocol

from router.errors import describe_fault
from router.model_config import check_address

Addresses = frozenset[str]

_MOST = 1024
_RETRY_S = (0.1, 0.5, 1.0, 2.0, 5.0)

log = logging.getLogger("tidegate.discovery")


class DiscoveryFailed(Exception):
    """A source cannot tell now. The message says why, for the log."""


class Source(Protocol):
    """Where addresses come from; the name is for the log."""

    name: str

    def watch(self) -> AsyncGenerator[Addresses, None]:
        """All addresses, host:port, again and again; ends when they never change. Raises DiscoveryFailed, and may be called again then."""


class Static:
    """Addresses from the configuration."""

    name = "configuration"

    def __init__(self, addresses: Iterable[str]) -> None:
        self._addresses = frozenset(addresses)

    async def watch(self) -> AsyncGenerator[Addresses, None]:
        """See Source."""
        yield self._addresses


class WatchedFile:
    """Addresses in a file, one a line; what follows a # is a comment. Read anew whenever the file changes, in an executor."""

    def __init__(self, path: Path, executor: Executor, period_s: float = 1.0) -> None:
        self.name = str(path)
        self._path = path
        self._executor = executor
        self._period_s = period_s

    async def watch(self) -> AsyncGenerator[Addresses, None]:
        """See Source."""
        known = None
        while True:
            text = await asyncio.get_running_loop().run_in_executor(self._executor, self._read)
            if text != known:
                known = text
                yield read_addresses(text)
            await asyncio.sleep(self._period_s)

    def _read(self) -> str:
        try:
            return self._path.read_text()
        except (OSError, ValueError) as error:
            raise DiscoveryFailed(type(error).__name__) from error


def read_addresses(text: str) -> Addresses:
    """The addresses of a file. Raises DiscoveryFailed with the number of the first line that is none."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return frozenset(_read_address(line, number) for number, line in enumerate(lines, 1) if line)


def _read_address(line: str, number: int) -> str:
    try:
        return check_address(line)
    except ValueError:
        raise DiscoveryFailed(f"line {number} is not host:port") from None


Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The IP addresses of a host; raises OSError."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """Asks the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class Dns:
    """All addresses of a name, as a headless service has one for each pod. Asked again after a while: resolvers do not tell for how long an
    answer holds."""

    def __init__(self, host: str, port: int, period_s: float = 5.0, resolve: Resolve = resolve) -> None:
        self.name = f"{host}:{port}"
        self._host = host
        self._port = port
        self._period_s = period_s
        self._resolve = resolve

    async def watch(self) -> AsyncGenerator[Addresses, None]:
        """See Source."""
        while True:
            try:
                async with asyncio.timeout(2 * self._period_s):
                    found = await self._resolve(self._host, self._port)
            except (OSError, TimeoutError) as error:
                raise DiscoveryFailed(type(error).__name__) from error
            yield keep_one_family(join_address(host, self._port) for host in found)
            await asyncio.sleep(self._period_s)


def join_address(host: str, port: int) -> str:
    """host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def keep_one_family(addresses: Iterable[str]) -> Addresses:
    """Those of IPv4, or of IPv6 when there are no others: a pod that has one of each is still one worker."""
    every = frozenset(addresses)
    return frozenset(address for address in every if not address.startswith("[")) or every


async def follow(source: Source, *, settle_s: float = 0.2, retry_s: Sequence[float] = _RETRY_S) -> AsyncGenerator[Addresses, None]:
    """The sets to believe, each different from the one before. Ends if the source does. Close it when no longer needed."""
    reader, known = _Reader(source, retry_s), Addresses()
    task = asyncio.create_task(reader.run())
    try:
        while not reader.has_ended:
            await reader.news.wait()
            if known and not reader.has_ended:
                await asyncio.sleep(settle_s)
            reader.news.clear()
            if reader.latest != known:
                known = reader.latest
                yield known
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Reader:
    """Reads a source for ever and keeps its newest set. Each trouble is logged once, not as often as it is met."""

    def __init__(self, source: Source, retry_s: Sequence[float]) -> None:
        self.latest = Addresses()
        self.news = asyncio.Event()
        self.has_ended = False
        self._source = source
        self._retry_s = retry_s
        self._failures = 0
        self._trouble = ""

    async def run(self) -> None:
        """Until the source ends or this is cancelled."""
        while not self.has_ended:
            try:
                await self._read()
            except DiscoveryFailed as failed:
                self._note(str(failed))
            except Exception as error:  # whatever a source meets, the workers that are known stay
                self._note(describe_fault(error))
            else:
                self.has_ended = True
                self.news.set()
                return
            await asyncio.sleep(self._retry_s[min(self._failures, len(self._retry_s) - 1)])
            self._failures += 1

    async def _read(self) -> None:
        async with aclosing(self._source.watch()) as sets:
            async for addresses in sets:
                self._take(addresses)

    def _take(self, addresses: Addresses) -> None:
        self._failures = 0
        if not addresses:
            self._note("there are none")
            return
        self._note(f"{len(addresses)}, of which {_MOST} are used" if len(addresses) > _MOST else "")
        self.latest = frozenset(sorted(addresses)[:_MOST])
        self.news.set()

    def _note(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            log.warning("workers from %s: %s", self._source.name, trouble)
        self._trouble = trouble

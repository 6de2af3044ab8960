"""A conversation over connections that are cut at random points, with a stream that is resumed each time."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from random import Random

from tidegate import TidegateError
from tidegate.v1.turn_pb2 import TurnSpec

from tests.bench.proxy import Proxy
from tests.bench.resuming import ResumingCaller
from tests.bench.wires import Face


@asynccontextmanager
async def connected(caller: ResumingCaller, face: Face, address: str) -> AsyncIterator[None]:
    """The caller on a TCP connection of its own."""
    async with face.dialling(address) as dial:
        await caller.connect(dial)
        yield


async def talk_through_cuts(face: Face, proxies: Sequence[Proxy], cuts: int, spec: TurnSpec) -> ResumingCaller:
    """Runs two turns at a time, by one proxy after the other, until this many connections were cut; then all that was begun ends."""
    points, caller, ways = Random(cuts), ResumingCaller(5), cycle(proxies)
    while sum(proxy.cuts for proxy in proxies) < cuts:
        proxy = next(ways)
        try:
            async with connected(caller, face, proxy.address):
                if caller.ready is None:
                    await caller.read()
                proxy.cut_after(points.choice((points.randrange(1, 200), points.randrange(1, 20_000))))
                await _run_pairs(caller, spec)
        except TidegateError as lost:
            assert lost.reason in ("UNREACHABLE", "STREAM_LOST"), lost  # the wire says so, not a router
    async with connected(caller, face, next(ways).address):
        await caller.read_until_ended(*caller.starts)
        await caller.half_close()
        assert not await caller.read()
    return caller


async def _run_pairs(caller: ResumingCaller, spec: TurnSpec) -> None:
    while True:
        await caller.read_until_ended(*caller.starts)
        await caller.start(spec)
        await caller.start(spec)


def digest(text: str) -> str:
    """A text's hash."""
    return hashlib.sha256(text.encode()).hexdigest()


def digests(caller: ResumingCaller) -> set[str]:
    """The hashes of all answers that the caller has."""
    return {digest(text) for turn, text in caller.texts.items() if turn}

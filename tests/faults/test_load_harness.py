"""A load harness must not be fooled: errors are errors, moments are those of the socket, and overload shows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import count
from pathlib import Path

import h11
import pytest
from loadtest.measures import measure
from loadtest.mocks.openai_mock import write_chunk
from loadtest.record import Outcome, Record
from loadtest.request import Request
from loadtest.result import Load, Measures, Slo
from loadtest.runner import Patience, Run, Runner
from loadtest.targets import Target
from loadtest.targets.converse import ConverseOptions, ConverseTarget
from loadtest.targets.http import Connection, Origin
from loadtest.targets.openai import OpenAIOptions, OpenAITarget
from loadtest.targets.stamps import stamp
from loadtest.usage import ProcessSamples

from tests.bench.whole import run_bench
from tests.bench.worker import End, Finish, Wait, Worker
from tests.unit.loadtest.fakes import END, HEAD, WORD, Step, always, make_request, serve_http

BROKEN_STREAM = write_chunk(b'data: {"error": {"code": "engine_failed", "message": "out of luck"}}\n\n')


def figures(run: Run, *, callers: int | None = None) -> Measures:
    load = Load("open", len(run.records) / (run.end - run.begin)) if callers is None else Load("closed", callers)
    return measure(run, load, Slo(pause_s=0.1), ProcessSamples("harness", 1))


async def play_one(target: Target, patience: Patience | None = None) -> Measures:
    return figures(await Runner(target, patience or Patience()).play_open([make_request()]))


def codes(told: Measures) -> set[str]:
    return {flag.code for flag in told.flags}


async def test_an_error_in_the_stream_is_no_short_answer_over_grpc(chatml: Path) -> None:
    """A token, then a failed engine: failed, no latency, its token wasted."""
    async with run_bench(chatml, Worker(chatml, ["a", End(Finish.FAILED, "boom")])) as router:
        async with ConverseTarget.open(ConverseOptions(router.target)) as target:
            told = await play_one(target)
    assert (told.outcomes, told.reasons) == ({"failed": 1}, {"ENGINE_FAILED": 1})
    assert (told.ttft.count, told.good_share, told.tokens_out_per_s, told.tokens_wasted) == (0, 0, 0, 1)
    assert {"FAILED", "NOTHING_COMPLETED"} <= codes(told)


@pytest.mark.parametrize("rest", [(END,), (None,), (9.0,), ()])
async def test_an_error_in_the_stream_is_no_short_answer_over_http(rest: tuple[Step, ...]) -> None:
    """A token, then an error frame: whether the server ends the body well, cuts it or leaves it open."""
    async with serve_http(always(HEAD, WORD, BROKEN_STREAM, *rest)) as url:
        async with OpenAITarget.open(OpenAIOptions(url, "m")) as target:
            told = await asyncio.wait_for(play_one(target), 2)
    assert (told.outcomes, told.reasons) == ({"failed": 1}, {"ENGINE_FAILED": 1})


async def test_a_stall_is_told_as_one(chatml: Path) -> None:
    """The harness gives the request up and the engine is freed."""
    worker = Worker(chatml, ["a", Wait(100)])
    async with run_bench(chatml, worker) as router, ConverseTarget.open(ConverseOptions(router.target)) as target:
        told = await play_one(target, Patience(stall_s=0.2))
    assert (told.outcomes, told.reasons) == ({"stalled": 1}, {"NO_NEXT_TOKEN": 1})
    assert "STALLED" in codes(told)


async def test_a_drip_is_told_as_one(chatml: Path) -> None:
    """It completes, in its time; each token takes longer than a reader waits."""
    async with run_bench(chatml, Worker(chatml, [item for _ in range(4) for item in ("a", Wait(0.15))])) as router:
        async with ConverseTarget.open(ConverseOptions(router.target)) as target:
            told = await play_one(target)
    assert (told.outcomes, told.dripping) == ({"completed": 1}, 1)
    assert "DRIPPING" in codes(told)


class SlowReader:
    """Takes 30 ms to parse each piece."""

    wants_more = True

    def __init__(self) -> None:
        self.moments: list[float] = []

    def take_head(self, status: int, headers: Mapping[str, str]) -> None: ...

    def take_body(self, at: float, data: bytes) -> None:
        self.moments.append(at)
        time.sleep(0.03)

    def take_end(self, at: float) -> None: ...

    def break_off(self, at: float, reason: str) -> None: ...


async def test_a_slow_parser_does_not_make_a_server_slow() -> None:
    """Five answers come at once and take 150 ms to parse: their moments lie together, as they came."""
    head = h11.Request(method="POST", target="/", headers=[("host", "h"), ("content-length", "0")])
    release = asyncio.Event()

    async def script(body: bytes) -> AsyncIterator[Step]:
        await release.wait()
        yield HEAD + WORD + END

    async with serve_http(script) as url:
        connections = [await Connection.open(Origin.of(url)) for _ in range(5)]
        readers = [SlowReader() for _ in connections]
        for connection, reader in zip(connections, readers, strict=True):
            connection.send(head, b"", reader)
        await asyncio.sleep(0.05)
        release.set()
        await asyncio.wait_for(asyncio.gather(*(connection.wait_done() for connection in connections)), 5)
        for connection in connections:
            connection.close()
    firsts = [reader.moments[0] for reader in readers]
    assert max(firsts) - min(firsts) < 0.02


def test_a_grpc_message_has_its_moment_before_it_is_parsed() -> None:
    """However long that takes."""

    def parse(data: bytes) -> bytes:
        time.sleep(0.05)
        return data

    before = time.perf_counter()
    assert stamp(parse)(b"x").at - before < 0.02


def fifty_per_second(chatml: Path) -> Worker:
    """One request at a time, two steps of 10 ms for each."""
    return Worker(chatml, ["a"], step_s=0.01, max_sequences=1)


def endless() -> Iterator[Request]:
    return (make_request(number) for number in count())


async def test_an_open_loop_shows_overload(chatml: Path) -> None:
    """A hundred a second to a server that does fifty: all are offered in time, waits grow, the p99 is near a second, and it is flagged."""
    async with run_bench(chatml, fifty_per_second(chatml)) as router:
        async with ConverseTarget.open(ConverseOptions(router.target)) as target:
            run = await Runner(target, Patience()).play_open((make_request(at, at / 100) for at in range(100)), 1.0)
    told = figures(run)
    assert told.offered_per_s == 100
    assert told.completed_per_s < 60
    assert told.ttft.p50 is not None
    assert told.ttft.p99 is not None
    assert told.ttft.p99 > 0.8
    assert told.ttft.p99 > 1.5 * told.ttft.p50
    assert "OVERLOADED" in codes(told)


async def test_a_closed_loop_does_not_hide_overload_silently(chatml: Path) -> None:
    """The same server under two callers looks well: latency is flat, and the result says why."""
    async with run_bench(chatml, fifty_per_second(chatml)) as router:
        async with ConverseTarget.open(ConverseOptions(router.target)) as target:
            run = await Runner(target, Patience()).play_closed(endless(), concurrency=2, seconds=1.0)
    told = figures(run, callers=2)
    assert told.e2e.p90 is not None
    assert told.e2e.p90 < 0.3
    assert "CLOSED_LOOP" in codes(told)


async def test_sends_that_were_late_are_the_harnesss_fault() -> None:
    """A harness that is busy for 200 ms while requests are due counts their waiting, and says that it is its own."""

    class Quick:
        async def run(self, request: Request, record: Record) -> None:
            record.send(time.perf_counter())
            record.arrive(time.perf_counter())
            record.complete(time.perf_counter())

    asyncio.get_running_loop().call_later(0.1, time.sleep, 0.2)
    run = await Runner(Quick(), Patience()).play_open((make_request(at, at / 100) for at in range(50)), 0.5)
    told = figures(run)
    assert told.ttft.high is not None
    assert told.ttft.high > 0.15
    assert "LATE_SENDS" in codes(told)
    assert {record.outcome for record in run.records} == {Outcome.COMPLETED}

"""Against servers with known delays every reported figure is within 2 % of what came, and what came is told of within 10 ms.

The servers note the moment of each token in this process's own clock. On its way to the harness a token waits for whatever the machine does
meanwhile, which is no error of the harness; but the token that waited least shows what the harness itself adds to all.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from loadtest.measures import measure
from loadtest.record import Outcome
from loadtest.result import Load, Measures, Slo
from loadtest.runner import Patience, Run, Runner
from loadtest.targets import Target
from loadtest.targets.converse import ConverseOptions, ConverseTarget
from loadtest.targets.kserve import KServeOptions, KServeTarget
from loadtest.targets.openai import OpenAIOptions, OpenAITarget
from loadtest.usage import ProcessSamples

from server.engine.base import Request as EngineRequest
from tests.bench.raw_worker import Requests, Responses, run_raw_worker
from tests.bench.whole import run_bench
from tests.bench.worker import Item, Wait, Worker
from tests.unit.loadtest.fakes import END, FIRST, HEAD, LAST, WORD, make_request, serve_http
from tests.unit.loadtest.test_kserve import answer

TTFT_S, GAP_S, TOKENS = 0.15, 0.06, 6
REQUESTS, RATE, SECONDS = 30, 30.0, 3.0
MOST_LATE_S = 0.01
SLO = Slo(ttft_s=0.5, tpot_s=0.2)

Moments = defaultdict[int, list[float]]
"""When the server made each token, by the request's number."""


async def play(target: Target) -> Run:
    """Requests are told apart by the number of tokens that they ask for."""
    requests = (make_request(at, at / RATE, tokens=100 + at) for at in range(REQUESTS))
    return await Runner(target, Patience()).play_open(requests, SECONDS)


def check(run: Run, moments: Moments) -> None:
    """All figures against those worked out from the moments at which tokens came, and these against the servers' own."""
    told = measure(run, Load("open", RATE), SLO, ProcessSamples("harness", 1))
    check_arrivals([(moments[record.number], record.arrivals) for record in run.records])
    check_times(told, [(record.due, record.arrivals) for record in run.records])
    assert told.outcomes == {Outcome.COMPLETED: REQUESTS}
    assert told.offered_per_s == told.completed_per_s == told.good_per_s == pytest.approx(REQUESTS / told.seconds)
    assert told.tokens_out_per_s == pytest.approx(REQUESTS * TOKENS / told.seconds)


def check_arrivals(records: Sequence[tuple[Sequence[float], Sequence[float]]]) -> None:
    """Each token came after it was made. What all are late by is the harness's error; what some are late by is the machine's work."""
    delays = [came - made for answer in records for made, came in zip(*answer, strict=True)]
    assert len(delays) == REQUESTS * TOKENS
    assert 0 <= min(delays) < MOST_LATE_S


def check_times(told: Measures, records: Sequence[tuple[float, Sequence[float]]]) -> None:
    """Each distribution, where it is told."""
    gaps = [later - earlier for _, came in records for earlier, later in pairwise(came)]
    truths = (
        (told.ttft, [came[0] - due for due, came in records]),
        (told.e2e, [came[-1] - due for due, came in records]),
        (told.tpot, [(came[-1] - came[0]) / (TOKENS - 1) for _, came in records]),
        (told.itl, gaps),
    )
    for values, truth in truths:
        assert values.count == len(truth)
        assert values.mean == pytest.approx(sum(truth) / len(truth), rel=0.02)
        for share, value in ((0.5, values.p50), (0.9, values.p90)):
            assert value == pytest.approx(sorted(truth)[math.ceil(share * len(truth)) - 1], rel=0.02)
    assert min(truths[0][1]) >= TTFT_S


@pytest.mark.parametrize("streams", [1, 4])
async def test_through_the_router(chatml: Path, streams: int) -> None:
    """A scripted worker behind the real router: lane, Converse streams and all."""
    moments: Moments = defaultdict(list)

    def script(request: EngineRequest) -> Iterator[Item]:
        for at in range(TOKENS):
            yield Wait(GAP_S if at else TTFT_S)
            moments[request.max_new_tokens - 100].append(time.perf_counter())
            yield "a"

    async with run_bench(chatml, Worker(chatml, script)) as router:
        async with ConverseTarget.open(ConverseOptions(router.target, streams)) as target:
            check(await play(target), moments)


async def test_over_http() -> None:
    """Server-sent events, and half a second between the last content and the trailer."""
    moments: Moments = defaultdict(list)

    async def script(body: bytes) -> AsyncIterator[bytes | float]:
        yield HEAD + FIRST
        for at in range(TOKENS):
            yield GAP_S if at else TTFT_S
            moments[int(body.partition(b'"max_tokens": ')[2][:3]) - 100].append(time.perf_counter())
            yield WORD
        yield 0.5
        yield LAST + END

    async with serve_http(script) as url, OpenAITarget.open(OpenAIOptions(url, "mock")) as target:
        check(await play(target), moments)


async def test_from_triton() -> None:
    """A Triton stream for each request."""
    moments: Moments = defaultdict(list)

    async def serve(requests: Requests) -> Responses:
        async for request in requests:
            for at in range(TOKENS):
                await asyncio.sleep(GAP_S if at else TTFT_S)
                moments[int(request.id)].append(time.perf_counter())
                yield answer(5)
            yield answer(final=True)

    async with run_raw_worker(serve) as address, KServeTarget.open(KServeOptions(address)) as target:
        check(await play(target), moments)

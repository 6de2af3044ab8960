"""The Converse target against a real router with a scripted worker behind it."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from loadtest.options import add_run_options, open_target
from loadtest.record import Outcome, Record
from loadtest.targets.converse import ConverseOptions, ConverseTarget, take_event
from tidegate.v1.event_pb2 import Event, Failed, Queued, Started

from tests.bench.authority import Authority
from tests.bench.router import run_router
from tests.bench.tenants import make_key
from tests.bench.waiting import until
from tests.bench.whole import run_bench
from tests.bench.worker import Emit, End, Finish, Item, Wait, Worker
from tests.unit.loadtest.fakes import make_request


async def ask(target: ConverseTarget, count: int = 1, tokens: int = 8) -> list[Record]:
    records = [Record(number, "", time.perf_counter()) for number in range(count)]
    asking = (target.run(make_request(record.number, tokens=tokens), record) for record in records)
    await asyncio.wait_for(asyncio.gather(*asking), 10)
    return records


@pytest.mark.parametrize("streams", [1, 3])
async def test_turns_share_streams(chatml: Path, streams: int) -> None:
    """Twelve turns at once, over one stream or three: each gets its own events and usage."""
    worker = Worker(chatml, ["a", Wait(0.02), "b"])
    async with run_bench(chatml, worker) as router, ConverseTarget.open(ConverseOptions(router.target, streams)) as target:
        records = await ask(target, 12)
        assert router.app.registry.get_sample_value("tidegate_streams") == streams
    assert {(record.outcome, record.tokens, len(record.arrivals)) for record in records} == {(Outcome.COMPLETED, 2, 2)}
    assert all(record.usage and record.usage.prompt > 0 and record.started is not None for record in records)


async def test_a_router_with_tls_is_driven(chatml: Path, tmp_path: Path) -> None:
    """By `tidegate://` and `--tls-ca`, the file of who signs its certificate."""
    authority = Authority(tmp_path / "ca")
    authority.issue("server", "IP:127.0.0.1")
    parser = argparse.ArgumentParser()
    add_run_options(parser)
    async with Worker(chatml, ["ab"]).running() as worker, run_router(chatml, worker.address, tls=authority.section(), auth={}) as router:
        key = await make_key(router)
        given = (f"tidegate://{router.target}", "--tls-ca", f"{authority.folder}/ca.pem", "--header", f"authorization=Bearer {key}")
        async with open_target(parser.parse_args(given)) as target:
            record = Record(0, "", time.perf_counter())
            await asyncio.wait_for(target.run(make_request(), record), 10)
    assert (record.outcome, record.reason) == (Outcome.COMPLETED, "")


@pytest.mark.parametrize(
    ("script", "outcome", "reason"),
    [
        (["a", End(Finish.FAILED, "boom")], Outcome.FAILED, "ENGINE_FAILED"),
        ([Wait(100)], Outcome.FAILED, "WORKER_STALLED"),
        (["a", Wait(100)], Outcome.FAILED, "WORKER_STALLED"),
    ],
)
async def test_a_failed_turn_is_a_failure(chatml: Path, script: Sequence[Item], outcome: Outcome, reason: str) -> None:
    """With the router's reason; the stream lives, and the next turn on it works."""
    worker = Worker(chatml, lambda _: script if worker.calls == 1 else ["ok"])
    limits = {"first_token_s": 0.3, "idle_s": 0.15}
    async with run_bench(chatml, worker, timeouts=limits) as router, ConverseTarget.open(ConverseOptions(router.target)) as target:
        (bad,), (good,) = await ask(target), await ask(target)
    assert (bad.outcome, bad.reason) == (outcome, reason)
    assert good.outcome is Outcome.COMPLETED


def test_a_refusal_for_being_full_is_shed() -> None:
    """RESOURCE_EXHAUSTED is not an error of the server; other failures are."""
    for code, outcome in ((grpc.StatusCode.RESOURCE_EXHAUSTED, Outcome.SHED), (grpc.StatusCode.UNAVAILABLE, Outcome.FAILED)):
        status = Status(code=code.value[0], message="secret")
        status.details.add().Pack(ErrorInfo(reason="WORKER_FULL"))
        record = Record(0, "", 0.0)
        take_event(record, Event(failed=Failed(status=status)), 1.0)
        assert (record.outcome, record.reason, record.ended) == (outcome, "WORKER_FULL", 1.0)


def test_queue_news_is_kept() -> None:
    """The first `queued` begins the wait, `started` ends it."""
    record = Record(0, "", 0.0)
    for at, event in enumerate((Event(queued=Queued(position=2)), Event(queued=Queued(position=1)), Event(started=Started()))):
        take_event(record, event, float(at))
    assert (record.queued, record.started) == (0.0, 2.0)


async def test_a_lost_router_fails_its_turns(chatml: Path) -> None:
    """All that ran on the stream, at once. The next request may still find the stream ending; the one after it finds nobody."""
    async with Worker(chatml, ["a", Wait(100)]).running() as worker, AsyncExitStack() as exits:
        router = await exits.enter_async_context(run_router(chatml, worker.address))
        async with ConverseTarget.open(ConverseOptions(router.target)) as target:
            asking = asyncio.create_task(ask(target, 3))
            await until(lambda: worker.calls == 3)
            await exits.aclose()
            records = [*await asking, *await ask(target), *await ask(target)]
    assert {record.outcome for record in records} == {Outcome.FAILED}
    assert records[-1].reason == "UNREACHABLE"


async def test_a_cancelled_turn_is_cancelled_in_the_engine(chatml: Path) -> None:
    """The others on its stream go on."""
    worker = Worker(chatml, lambda request: [*"abc", Wait(100)] if request.max_new_tokens == 99 else ["x"] * 100)
    async with run_bench(chatml, worker) as router, ConverseTarget.open(ConverseOptions(router.target)) as target:
        record = Record(0, "", time.perf_counter())
        doomed = asyncio.create_task(target.run(make_request(tokens=99), record))
        other = asyncio.create_task(ask(target, tokens=100))
        await until(lambda: len(record.arrivals) == 3)
        doomed.cancel()
        await asyncio.wait({doomed})
        await until(lambda: worker.engine.cancelled == 1)
        assert [each.outcome for each in await other] == [Outcome.COMPLETED]


async def test_tenants_have_streams_of_their_own(chatml: Path) -> None:
    """Identity is per stream, so headers that name the tenant make a stream for each."""
    options: dict[str, Any] = {"headers": {"x-tenant": "{tenant}"}}
    async with run_bench(chatml, Worker(chatml)) as router:
        async with ConverseTarget.open(ConverseOptions(router.target, **options)) as target:
            for tenant in ("tenant-1", "tenant-2", "tenant-1"):
                await target.run(make_request(tenant=tenant), Record(0, tenant, 0.0))
            assert router.app.registry.get_sample_value("tidegate_streams") == 3


async def test_tokens_of_one_step_come_at_one_moment(chatml: Path) -> None:
    """Two tokens in a step are one arrival, or two at the same moment: no gap between them is made up."""
    worker = Worker(chatml, [Emit((40, 41)), Wait(0.05), Emit((42, 43))])
    async with run_bench(chatml, worker) as router, ConverseTarget.open(ConverseOptions(router.target)) as target:
        (record,) = await ask(target)
    assert record.tokens == 4
    assert len(set(record.arrivals)) == 2

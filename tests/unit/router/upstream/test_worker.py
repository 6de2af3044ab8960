"""Which kind of worker is at an address."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.model_config_pb2 import ModelConfig

from router.config import Timeouts
from router.errors import WorkerError
from router.model import WorkerLoad
from router.upstream.access import PLAIN
from router.upstream.link import Owner
from router.upstream.stock import ModelFacts
from router.upstream.worker import Worker
from server.lanes import Frame
from tests.bench.raw_worker import LOAD, Requests, Responses, greeting, next_generation, run_raw_worker, write_frame
from tests.bench.waiting import until
from tests.bench.worker import Worker as LaneWorker
from tests.unit.router.upstream.fake_triton import ASKED, FACTS, FakeTriton, Taken, answer_once, stock_config


@asynccontextmanager
async def running(address: str, facts: ModelFacts = FACTS) -> AsyncIterator[Worker]:
    worker = Worker(address, facts, Timeouts(), Owner("test", lambda: None), PLAIN)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_worker_without_a_connection_takes_nothing() -> None:
    """It is down, empty, and says so."""
    async with running("127.0.0.1:1") as worker:
        assert (worker.up, worker.description, worker.running, worker.load, worker.silence_s) == (False, None, 0, WorkerLoad(), 0.0)
        with pytest.raises(WorkerError) as refused:
            worker.submit(ASKED, Taken())
    assert refused.value.reason == "NO_WORKER"


async def test_a_model_of_neither_kind_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    """The log says what is wrong with it."""
    caplog.set_level(logging.WARNING)
    async with FakeTriton(ModelConfig(name="tensorrt_llm"), answer_once).running() as address, running(address) as worker:
        await until(lambda: "neither Tidegate's nor TensorRT-LLM's" in caplog.text)
        assert not worker.up


async def test_what_stays_wrong_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The worker is tried for again and again; the log is not filled with that."""
    caplog.set_level(logging.WARNING)
    tries: list[triton.ModelConfigRequest] = []

    class Stranger(FakeTriton):
        async def ModelConfig(self, request: triton.ModelConfigRequest, context: Any) -> triton.ModelConfigResponse:
            tries.append(request)
            return await super().ModelConfig(request, context)

    async with Stranger(ModelConfig(name="tensorrt_llm"), answer_once).running() as address, running(address):
        await until(lambda: len(tries) > 3)
        assert len(caplog.messages) == 1


async def test_a_worker_of_another_vocabulary_is_not_used(chatml: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two models' addresses that were swapped would give nonsense that nobody could explain: the log tells both numbers instead."""
    lane = LaneWorker(chatml)
    facts = replace(FACTS, vocabulary=FACTS.vocabulary + 1)
    async with lane.running(), running(lane.address, facts) as worker:
        await until(lambda: "token ids; this model has 267" in caplog.text)
        assert not worker.up


async def test_an_address_may_change_its_kind(chatml: Path) -> None:
    """A stock worker that is replaced by one of ours at the same address is found out at the next connection."""
    lane = LaneWorker(chatml)

    def kind() -> str:
        return worker.description.engine if worker.description else ""

    async with AsyncExitStack() as stack:
        async with FakeTriton(stock_config(), answer_once).running() as lane.address:
            worker = await stack.enter_async_context(running(lane.address))
            await until(lambda: kind() == "tensorrtllm")
        async with lane.running():
            await until(lambda: kind() == "scripted")


async def test_the_log_tells_in_words_what_a_worker_is(chatml: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once it is up, and not as Python would write it."""
    caplog.set_level(logging.INFO)
    lane = LaneWorker(chatml)
    async with lane.running(), running(lane.address) as worker:
        await until(lambda: worker.up)
    assert f"worker {lane.address} is up: scripted-model on scripted (fast), " in caplog.text


async def test_kv_events_are_handed_on(chatml: Path) -> None:
    """After the change that says the worker is up, so that whoever keeps them knows whose they are."""
    told: list[object] = []

    async def play(requests: Requests) -> Responses:
        async for _ in requests:
            yield greeting(chatml)
            yield write_frame(Frame(2, LOAD, detail=[json.dumps({"kv_events": [{"event_id": 7}]})]))

    async with run_raw_worker(play) as address:
        worker = Worker(address, FACTS, Timeouts(), Owner("test", lambda: told.append(worker.up), on_kv_events=told.append), PLAIN)
        task = asyncio.create_task(worker.run())
        await until(lambda: told == [True, [{"event_id": 7}]])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_slots_are_those_that_others_leave(chatml: Path) -> None:
    """By the worker's count: turns of this router that are on their way there do not pass for others' that are gone."""

    async def play(requests: Requests) -> Responses:
        yield greeting(chatml)
        await next_generation(requests)
        yield write_frame(Frame(2, replace(LOAD, active=3, queued=2), own=1))
        async for _ in requests:
            pass

    async with run_raw_worker(play) as address, running(address) as worker:
        await until(lambda: worker.up)
        assert worker.description is not None
        for _ in range(3):
            worker.submit(ASKED, Taken())
        await until(lambda: worker.load.active == 3)
        assert (worker.running, worker.slots) == (3, worker.description.max_sequences - 4)


async def test_a_silent_worker_is_known_before_it_is_given_up(chatml: Path) -> None:
    """Its lane is open and it counts as up; for how long it has said nothing shows, until it speaks again."""
    speak = asyncio.Event()

    async def play(requests: Requests) -> Responses:
        async for _ in requests:
            yield greeting(chatml)
            await speak.wait()
            yield write_frame(Frame(2, LOAD))

    async with run_raw_worker(play) as address, running(address) as worker:
        await until(lambda: worker.up and worker.silence_s > 0.1)
        speak.set()
        await until(lambda: worker.silence_s < 0.1)
        assert worker.up


async def test_a_worker_that_cannot_keep_tenants_apart_is_sent_no_salt(chatml: Path) -> None:
    """It would refuse one."""
    salted: list[bool] = []

    async def play(requests: Requests) -> Responses:
        yield greeting(chatml)
        while True:
            salted.append("cache_salt" in (await next_generation(requests)).parameters)

    async with run_raw_worker(play) as address, running(address) as worker:
        await until(lambda: worker.up)
        for salt in ("a", "b"):
            worker.submit(replace(ASKED, cache_salt=salt), Taken())
        await until(lambda: salted == [False] * 2)


async def test_a_worker_that_cannot_keep_tenants_apart_is_used_only_where_that_is_accepted(
    chatml: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of either kind; the log says what to set. One that reuses nothing has nothing to share."""
    strict = replace(FACTS, shared_prefixes=False)

    async def play(requests: Requests) -> Responses:
        yield greeting(chatml)
        await asyncio.Event().wait()

    async with run_raw_worker(play) as ours, FakeTriton(stock_config(enable_kv_cache_reuse="true"), answer_once).running() as stock:
        for address in (ours, stock):
            async with running(address, strict) as worker:
                await until(lambda: f"worker {address}: it reuses cached prefixes" in caplog.text)  # noqa: B023 - awaited at once
                assert not worker.up
    async with (
        FakeTriton(stock_config(enable_kv_cache_reuse="false"), answer_once).running() as address,
        running(address, strict) as worker,
    ):
        await until(lambda: worker.up)


async def test_changes_are_told() -> None:
    """When the worker comes and when it goes, after `up` has its new value."""
    told: list[bool] = []
    worker: Worker

    async with FakeTriton(stock_config(), answer_once).running() as address:
        worker = Worker(address, FACTS, Timeouts(), Owner("test", lambda: told.append(worker.up)), PLAIN)
        task = asyncio.create_task(worker.run())
        await until(lambda: told == [True])
        await worker.submit(ASKED, Taken()).wait()
    await until(lambda: told == [True, False])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

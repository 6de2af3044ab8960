"""Triton callers when things go wrong: those who do not read, workers that die, and a router that goes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from tritonclient.utils import InferenceServerException

from tests.bench.calls import failure_of
from tests.bench.kserve import STREAM, ids_of, parameters_of, stream, tokens_request, triton_client
from tests.bench.router import Router, run_router
from tests.bench.waiting import until
from tests.bench.whole import run_bench
from tests.bench.worker import Wait, Worker
from tests.faults.test_slow_reader import SMALL_WINDOW, is_done

PROMPT = [5, 6, 7]
TURNS = 100
ANSWER = ["a" * 10] * 100


def raw_request(number: int, most: int) -> triton.ModelInferRequest:
    """A streamed request, as a client that need not be NVIDIA's writes it."""
    request = triton.ModelInferRequest(model_name="tensorrt_llm", id=str(number))
    for name, value in (("input_ids", 5), ("request_output_len", most)):
        request.inputs.add(name=name, datatype="INT32", shape=[1, 1]).contents.int_contents.append(value)
    request.inputs.add(name="streaming", datatype="BOOL", shape=[1, 1]).contents.bool_contents.append(True)
    return request


@asynccontextmanager
async def open_stub(router: Router) -> AsyncIterator[Any]:
    """A stub whose connection buffers little."""
    async with grpc.aio.insecure_channel(router.target, options=SMALL_WINDOW) as channel:
        yield GRPCInferenceServiceStub(channel)


async def test_tokens_for_a_paused_reader_are_joined(chatml: Path) -> None:
    """A caller that reads nothing until all has ended gets each answer whole, and the ends of most in one large response."""
    worker = Worker(chatml, ANSWER, max_sequences=TURNS)
    async with run_bench(chatml, worker) as router, open_stub(router) as stub:
        call = stub.ModelStreamInfer(raw_request(number, 1000) for number in range(TURNS))
        await until(lambda: worker.calls == TURNS and is_done(router, worker))
        messages = [message async for message in call]
    sizes = Counter[str]()
    for message in messages:
        sizes[message.infer_response.id] += len(message.infer_response.raw_output_contents[0]) // 4
    assert sizes == {str(number): 1000 for number in range(TURNS)}
    assert len(messages) < TURNS * len(ANSWER) / 2


async def test_a_caller_that_never_reads_loses_its_stream(chatml: Path) -> None:
    """After the limit its turns leave the engine, and it finds why; others keep their pace."""
    worker = Worker(chatml, lambda it: [*ANSWER, Wait(1000)] if it.max_new_tokens == 1950 else ["b"] * 500, max_sequences=2 * TURNS)
    async with run_bench(chatml, worker, timeouts={"slow_reader_s": 2.0}) as router, open_stub(router) as stub:
        call = stub.ModelStreamInfer(raw_request(number, 1950) for number in range(TURNS))
        await until(lambda: worker.calls == TURNS)
        async with triton_client(router.target) as client:
            assert len(ids_of(await stream(client, tokens_request(PROMPT, 500, STREAM)))) == 500
        await until(lambda: is_done(router, worker))
        error = await failure_of(call)
        assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "READER_TOO_SLOW")


async def test_a_worker_that_dies_fails_its_requests_only(chatml: Path) -> None:
    """Behind the tokens that came, as text, and the stream serves again when the worker does."""
    worker = Worker(chatml, lambda it: ["a", Wait(1000)] if it.max_new_tokens == 100 else ["ok"])
    told: list[Any] = []

    async def ask() -> AsyncIterator[dict[str, Any]]:
        yield tokens_request(PROMPT, 100, STREAM)
        await until(lambda: told)
        await worker.stop()
        await until(lambda: not router.app.health.serves())
        await worker.start()
        await until(router.app.health.serves)
        yield tokens_request(PROMPT, 16, STREAM)

    async with run_bench(chatml, worker) as router, triton_client(router.target) as client:
        async for result, error in client.stream_infer(ask()):
            told.append(error or result)
    assert len(ids_of(told[:1])) == 1
    assert isinstance(told[1], InferenceServerException)
    assert told[1].message() == "WORKER_LOST: the worker was lost; the answer is incomplete"
    assert len(ids_of(told[2:])) == 2


async def test_an_answer_goes_on_at_another_worker(chatml: Path) -> None:
    """With the tokens that came before as part of its prompt; the caller sees one answer."""
    workers = [Worker(chatml, lambda it: ["a", Wait(1000)] if len(it.prompt) == len(PROMPT) else ["b"]) for _ in range(2)]
    async with run_bench(chatml, *workers) as router, triton_client(router.target) as client:
        told: list[Any] = []
        asked = asyncio.ensure_future(stream(client, tokens_request(PROMPT, 16, STREAM), told=told))
        await until(lambda: bool(told))
        await next(worker for worker in workers if worker.calls).stop()
        await asked
    assert ids_of(told) == list(workers[0].tokens_of("ab"))
    assert parameters_of(told[-1])["completion_tokens"] == 2


async def test_running_requests_finish_while_the_router_drains(chatml: Path) -> None:
    """New ones are refused, on streams that are open too, and these end when their last request has."""
    worker = Worker(chatml, [Wait(0.3), "ok"])
    async with worker.running(), AsyncExitStack() as stack:
        router = await stack.enter_async_context(run_router(chatml, worker.address, timeouts={"drain_s": 10.0}))
        async with triton_client(router.target) as client:
            stops: list[asyncio.Task[None]] = []
            forever = asyncio.Event()

            async def ask() -> AsyncIterator[dict[str, Any]]:
                yield tokens_request(PROMPT, 16, STREAM)
                await until(lambda: worker.calls == 2)
                stops.append(asyncio.create_task(stack.aclose()))
                await until(lambda: not router.app.health.serves())
                yield tokens_request(PROMPT, 16, STREAM)
                await forever.wait()

            single = asyncio.ensure_future(client.infer(**tokens_request(PROMPT, 16, {"exclude_input_in_output": ("BOOL", [[True]])})))
            told = [error or result async for result, error in client.stream_infer(ask())]
            assert len(ids_of([await single])) == 2
            forever.set()
            await stops[0]
    assert isinstance(told[0], InferenceServerException)
    assert told[0].message().startswith("DRAINING: ")
    assert len(ids_of(told[1:])) == 2
    assert parameters_of(told[-1])["finish_reason"] == "stop"


async def test_requests_over_the_grace_fail_as_draining(chatml: Path) -> None:
    """In words on a stream, with a status on a single call, and the engine is empty."""
    worker = Worker(chatml, ["a", Wait(1000)])
    async with worker.running(), AsyncExitStack() as stack:
        router = await stack.enter_async_context(run_router(chatml, worker.address, timeouts={"drain_s": 0.2}))
        async with triton_client(router.target) as client:
            single = asyncio.ensure_future(client.infer(**tokens_request(PROMPT, 100)))
            streamed = asyncio.ensure_future(stream(client, tokens_request(PROMPT, 100, STREAM)))
            await until(lambda: worker.calls == 2)
            await stack.aclose()
            failure = (await asyncio.gather(single, return_exceptions=True))[0]
            told = await streamed
    assert isinstance(failure, InferenceServerException)
    assert failure.status() == "StatusCode.UNAVAILABLE"
    assert isinstance(told[-1], InferenceServerException)
    assert told[-1].message().startswith("DRAINING: ")
    assert worker.engine.cancelled == 2

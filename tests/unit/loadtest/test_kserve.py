"""The Triton target against a Triton stream whose messages the test chooses."""

from __future__ import annotations

import asyncio
import struct
import time

import pytest
from loadtest.record import Outcome, Record
from loadtest.targets.kserve import KServeOptions, KServeTarget, encode_words
from tritonclient.grpc import service_pb2 as triton

from tests.bench.raw_worker import Requests, Responses, run_raw_worker
from tests.bench.waiting import until
from tests.unit.loadtest.fakes import make_request


def answer(*tokens: int, final: bool = False, finish: bytes = b"", error: str = "") -> triton.ModelStreamInferResponse:
    message = triton.ModelStreamInferResponse(error_message=error)
    response = message.infer_response
    response.parameters["triton_final_response"].bool_param = final
    if tokens:
        response.outputs.add(name="output_ids", datatype="INT32", shape=[len(tokens)])
        response.raw_output_contents.append(struct.pack(f"<{len(tokens)}i", *tokens))
    if finish:
        response.outputs.add(name="finish_reason", datatype="BYTES", shape=[1])
        response.raw_output_contents.append(struct.pack("<I", len(finish)) + finish)
    return message


async def play(*steps: triton.ModelStreamInferResponse | float) -> tuple[Record, triton.ModelInferRequest]:
    asked: list[triton.ModelInferRequest] = []

    async def serve(requests: Requests) -> Responses:
        async for request in requests:
            asked.append(request)
            for step in steps:
                if isinstance(step, float):
                    await asyncio.sleep(step)
                else:
                    yield step

    record = Record(0, "", time.perf_counter())
    async with run_raw_worker(serve) as address, KServeTarget.open(KServeOptions(address, connections=1)) as target:
        await asyncio.wait_for(target.run(make_request(tokens=7), record), 5)
    return record, asked[0]


async def test_a_whole_answer() -> None:
    """Tokens are counted; the empty final response ends it."""
    record, asked = await play(answer(5), 0.05, answer(6, 7, finish=b"stop"), answer(final=True))
    assert (record.outcome, record.tokens, len(record.arrivals)) == (Outcome.COMPLETED, 3, 2)
    assert record.arrivals[1] - record.arrivals[0] == pytest.approx(0.05, abs=0.04)
    assert [tensor.name for tensor in asked.inputs] == ["input_ids", "input_lengths", "request_output_len"]
    assert asked.parameters["triton_enable_empty_final_response"].bool_param


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([answer(5), answer(error="secret")], "TRITON_ERROR"),
        ([answer(5)], "STREAM_ENDED"),
        ([answer(5, finish=b"timeout"), answer(final=True)], "TIMEOUT"),
    ],
)
async def test_what_is_not_complete_has_failed(steps: list[triton.ModelStreamInferResponse], reason: str) -> None:
    """Triton tells errors as text on a stream that ends with OK; the text is not kept."""
    record, _ = await play(*steps)
    assert (record.outcome, record.reason) == (Outcome.FAILED, reason)


async def test_nobody_there_is_a_failure() -> None:
    """Of the request, not of the harness."""
    record = Record(0, "", 0.0)
    async with KServeTarget.open(KServeOptions("127.0.0.1:1", connections=1)) as target:
        await target.run(make_request(), record)
    assert (record.outcome, record.reason) == (Outcome.FAILED, "UNAVAILABLE")


async def test_a_cancelled_request_is_cancelled_at_the_server() -> None:
    """Its stream ends."""
    gone = asyncio.Event()

    async def serve(requests: Requests) -> Responses:
        try:
            async for _ in requests:
                yield answer(5)
                await asyncio.Event().wait()
        finally:
            gone.set()

    async with run_raw_worker(serve) as address, KServeTarget.open(KServeOptions(address, connections=1)) as target:
        record = Record(0, "", 0.0)
        running = asyncio.create_task(target.run(make_request(), record))
        await until(lambda: len(record.arrivals) == 1)
        running.cancel()
        await asyncio.wait({running})
        await asyncio.wait_for(gone.wait(), 2)


def test_shared_text_is_a_shared_prefix() -> None:
    """A word is an id, the same everywhere."""
    assert encode_words("a b c")[:2] == encode_words("a b d")[:2]
    assert encode_words("a b c")[2] != encode_words("a b d")[2]

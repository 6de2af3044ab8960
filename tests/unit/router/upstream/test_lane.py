"""What a traced turn's own stream tells, beside the lane."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tritonclient.grpc import service_pb2 as triton

from router.errors import WorkerError
from tests.bench.raw_worker import Requests, Responses, greeting, run_raw_worker
from tests.bench.waiting import until
from tests.unit.router.upstream.fake_triton import ASKED, Taken
from tests.unit.router.upstream.test_worker import running

TRACED = replace(ASKED, trace_headers={"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})
DOWN = "the engine is down"


def refuse(request: triton.ModelInferRequest, text: str) -> triton.ModelStreamInferResponse:
    """A request's end with an error, as Triton tells it."""
    return triton.ModelStreamInferResponse(error_message=text, infer_response=triton.ModelInferResponse(id=request.id))


async def error_of_traced_turn(chatml: Path, text: str, *, lane_ends_first: bool) -> WorkerError:
    """What a traced turn ends with where its own stream tells this text and the lane ends, one behind the other."""
    asked, lane_may_end, turn_may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def play(requests: Requests) -> Responses:
        async for request in requests:
            if request.parameters["op"].string_param == "attach":
                yield greeting(chatml)
                await lane_may_end.wait()
                yield refuse(request, DOWN)
            elif request.parameters["op"].string_param == "generate":
                asked.set()
                await turn_may_end.wait()
                yield refuse(request, text)

    async with run_raw_worker(play) as address, running(address) as worker:
        await until(lambda: worker.up)
        generation = worker.submit(TRACED, Taken())
        await asyncio.wait_for(asked.wait(), 10)
        first, second = (lane_may_end, turn_may_end) if lane_ends_first else (turn_may_end, lane_may_end)
        first.set()
        with pytest.raises(WorkerError) as ended:
            await asyncio.wait_for(generation.wait(), 10)
        second.set()
        return ended.value


@pytest.mark.parametrize("lane_ends_first", [True, False])
@pytest.mark.parametrize("text", [DOWN, "lane: not attached", "[request id: 1] model tensorrt_llm takes no new inference requests"])
async def test_a_worker_that_goes_down_is_lost_in_whatever_order_it_is_told(chatml: Path, text: str, lane_ends_first: bool) -> None:
    """So the turn moves, whether its own stream or the lane told first."""
    assert (await error_of_traced_turn(chatml, text, lane_ends_first=lane_ends_first)).reason == "WORKER_LOST"


async def test_a_turn_that_is_refused_for_what_it_is_does_not_pass_for_lost(chatml: Path) -> None:
    """No other worker would take it."""
    text = "guided_decoding_guide_type: must be one of json_schema"
    assert (await error_of_traced_turn(chatml, text, lane_ends_first=False)).reason == "ENGINE_REFUSED"

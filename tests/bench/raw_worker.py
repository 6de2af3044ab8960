"""A worker that breaks the rules: a Triton stream whose messages a test chooses one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils
from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.service_pb2_grpc import add_GRPCInferenceServiceServicer_to_server

from server.engine.base import Finish, Load, Output
from server.lanes import Frame, Lane
from server.options import EngineOptions, describe_folder
from server.triton_model import frame_tensors
from tests.bench.serving import run_server
from tests.bench.worker import TidegateFront, write_response

Requests = AsyncIterator[triton.ModelInferRequest]
Responses = AsyncIterator[triton.ModelStreamInferResponse]

LOAD = Load(active=0, queued=0, free_blocks=64, total_blocks=64, tokens_per_block=32, step_us=1000)


def run_raw_worker(play: Callable[[Requests], Responses]) -> AbstractAsyncContextManager[str]:
    """Serves each stream with `play`; gives the address."""
    return run_server(add_GRPCInferenceServiceServicer_to_server, _Front(play))


def greeting(folder: Path) -> triton.ModelStreamInferResponse:
    """The first frame of a lane, which describes the worker."""
    frame = Lane(describe_folder(EngineOptions(folder, "raw", "raw", kv_blocks=64))).take_frame(LOAD)
    assert frame is not None, "a new lane has its greeting to send"
    return write_frame(frame)


def tokens(sequence: int, request: int, ids: list[int], finish: Finish = Finish.RUNNING) -> triton.ModelStreamInferResponse:
    """A frame with news of one request."""
    frame = Frame(sequence, LOAD)
    frame.add(request, Output(0, ids, finish))
    return write_frame(frame)


def write_frame(frame: Frame) -> triton.ModelStreamInferResponse:
    """A frame as Triton sends it."""
    return write_response(triton.ModelInferRequest(id="attach"), pb_utils.InferenceResponse(frame_tensors(frame)))


async def next_generation(requests: Requests) -> triton.ModelInferRequest:
    """Waits for a generation; other requests are passed over."""
    async for request in requests:
        if request.parameters["op"].string_param == "generate":
            return request
    raise EOFError("the router closed the lane")


class _Front(TidegateFront):
    def __init__(self, play: Callable[[Requests], Responses]) -> None:
        self._play = play

    async def ModelStreamInfer(self, requests: Requests, context: Any) -> Responses:
        async for response in self._play(requests):
            yield response

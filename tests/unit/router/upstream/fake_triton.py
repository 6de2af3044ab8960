"""Triton's face for one worker, in process: a configuration, whether the model is ready, and what each stream plays."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf import text_format
from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.model_config_pb2 import ModelConfig
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceServicer, add_GRPCInferenceServiceServicer_to_server

from router.model import GenerationRequest, Sampling, WorkerDelta, WorkerFinish
from router.upstream.stock import ModelFacts
from server.build import fill_placeholders
from server.engine_build import STOCK

FACTS = ModelFacts("small", (2, 0), 2048, 266, shared_prefixes=True)
ASKED = GenerationRequest([5, 6], 10, Sampling())

_SIZES = ("triton_max_batch_size", "max_queue_delay_microseconds", "max_queue_size", "instance_count")
_TYPES = ("logits_datatype", "encoder_input_features_data_type", "prompt_embedding_table_data_type")

Responses = AsyncIterator[triton.ModelStreamInferResponse]


def stock_config(**values: str) -> ModelConfig:
    """NVIDIA's configuration with these values; what is not given and may be unset stays `${name}`."""
    needed = {**dict.fromkeys(_SIZES, "8"), **dict.fromkeys(_TYPES, "TYPE_FP32"), "decoupled_mode": "true"}
    text = (STOCK / "tensorrt_llm/config.pbtxt").read_text()
    return text_format.Parse(fill_placeholders(text, needed | values), ModelConfig())


class Taken:
    """What a turn was given."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.finish = WorkerFinish.RUNNING

    def __call__(self, delta: WorkerDelta) -> None:
        self.tokens += delta.tokens
        self.finish = delta.finish


async def answer_once() -> Responses:
    """Two tokens and the end."""
    yield tokens(7)
    yield tokens(8)
    yield tokens(final=True)


def tokens(*ids: int, final: bool = False) -> triton.ModelStreamInferResponse:
    """A response of the stock model."""
    response = triton.ModelInferResponse(
        outputs=[triton.ModelInferResponse.InferOutputTensor(name=name) for name in ("output_ids", "sequence_length")],
        raw_output_contents=[struct.pack(f"<{len(ids)}i", *ids), struct.pack("<i", len(ids))],
    )
    response.parameters["triton_final_response"].bool_param = final
    return triton.ModelStreamInferResponse(infer_response=response)


@dataclass(slots=True)
class FakeTriton(GRPCInferenceServiceServicer):
    """`play` gives the responses to a stream's only request; `ended` counts streams that ended, for whatever reason."""

    config: ModelConfig
    play: Callable[[], Responses]
    ready: Callable[[], bool] = lambda: True
    ended: int = 0
    requests: list[triton.ModelInferRequest] = field(default_factory=list)

    async def ModelConfig(self, request: triton.ModelConfigRequest, context: Any) -> triton.ModelConfigResponse:
        return triton.ModelConfigResponse(config=self.config)

    async def ModelReady(self, request: triton.ModelReadyRequest, context: Any) -> triton.ModelReadyResponse:
        return triton.ModelReadyResponse(ready=self.ready())

    async def ModelStreamInfer(self, requests: AsyncIterator[triton.ModelInferRequest], context: Any) -> Responses:
        try:
            self.requests.append(await anext(aiter(requests)))
            async for response in self.play():
                yield response
        finally:
            self.ended += 1

    @asynccontextmanager
    async def running(self, address: str = "127.0.0.1:0") -> AsyncIterator[str]:
        """Serves until left; gives the address."""
        server = grpc.aio.server()
        add_GRPCInferenceServiceServicer_to_server(self, server)
        port = server.add_insecure_port(address)
        await server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await server.stop(None)

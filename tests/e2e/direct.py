"""Asking our Triton model without a router, as any Triton client would."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
from tritonclient.grpc import InferInput
from tritonclient.grpc.aio import InferenceServerClient


async def generate_directly(worker: str, prompt: Sequence[int], max_tokens: int) -> list[int]:
    """Token ids of one greedy answer."""
    ids: list[int] = []
    async for result in stream_directly(worker, prompt, max_tokens):
        ids += result.as_numpy("output_ids").tolist()
    return ids


async def stream_directly(worker: str, prompt: Sequence[int], max_tokens: int) -> AsyncIterator[Any]:
    """Triton's responses but the empty last one."""
    async with InferenceServerClient(worker) as client:
        async for result, error in client.stream_infer(_requests(prompt, max_tokens)):
            assert error is None
            if result.get_response().parameters["triton_final_response"].bool_param:
                return
            yield result


async def _requests(prompt: Sequence[int], max_tokens: int) -> AsyncIterator[dict[str, Any]]:
    inputs = [_tensor("input_ids", list(prompt)), _tensor("request_output_len", [max_tokens])]
    yield {"model_name": "tensorrt_llm", "inputs": inputs, "enable_empty_final_response": True}


def _tensor(name: str, values: list[int]) -> InferInput:
    tensor = InferInput(name, [len(values)], "INT32")
    tensor.set_data_from_numpy(np.array(values, dtype=np.int32))
    return tensor

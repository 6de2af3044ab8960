"""Asking a router, or a Triton, by NVIDIA's own client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from tritonclient.grpc import InferInput, InferResult
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

TYPES = {
    "BOOL": bool,
    "INT32": np.int32,
    "UINT64": np.uint64,
    "FP32": np.float32,
    "BYTES": np.object_,
}
STREAM = {"streaming": ("BOOL", [[True]])}

Tensors = Mapping[str, tuple[str, Any]]
"""Data type and nested values by name."""


@asynccontextmanager
async def triton_client(target: str) -> AsyncIterator[InferenceServerClient]:
    """The client, connected."""
    async with InferenceServerClient(target) as client:
        yield client


def tokens_request(prompt: Sequence[int], most: int, tensors: Tensors | None = None, **request: Any) -> dict[str, Any]:
    """A request for token ids as NVIDIA's own client writes it, with the batch dimension."""
    ids: Tensors = {
        "input_ids": ("INT32", [list(prompt)]),
        "input_lengths": ("INT32", [[len(prompt)]]),
        "request_output_len": ("INT32", [[most]]),
    }
    return write_request("tensorrt_llm", {**ids, **(tensors or {})}, **request)


def text_request(text: str, most: int, tensors: Tensors | None = None, **request: Any) -> dict[str, Any]:
    """A request for text."""
    asked: Tensors = {"text_input": ("BYTES", [[text]]), "max_tokens": ("INT32", [[most]])}
    return write_request("ensemble", {**asked, **(tensors or {})}, **request)


def write_request(model: str, tensors: Tensors, **request: Any) -> dict[str, Any]:
    """The arguments of `infer`, and an item of `stream_infer`."""
    return {"model_name": model, "inputs": [_tensor(name, *given) for name, given in tensors.items()], **request}


async def stream(
    client: InferenceServerClient, *requests: dict[str, Any], told: list[Any] | None = None, **options: Any
) -> list[InferResult | InferenceServerException]:
    """All that comes on a stream that is half-closed behind its requests; in `told` while it comes."""
    told = [] if told is None else told

    async def ask() -> AsyncIterator[dict[str, Any]]:
        for request in requests:
            yield request

    async for result, error in client.stream_infer(ask(), **options):
        told.append(error or result)
    return told


def ids_of(results: Sequence[Any]) -> list[int]:
    """The token ids of an answer's responses."""
    return [token for result in results if (ids := result.as_numpy("output_ids")) is not None for token in ids.ravel().tolist()]


def text_of(results: Sequence[Any]) -> str:
    """The text of an answer's responses."""
    return "".join(result.as_numpy("text_output")[0].decode() for result in results if result.as_numpy("text_output") is not None)


def parameters_of(result: InferResult) -> dict[str, Any]:
    """A response's parameters."""
    told = result.get_response().parameters
    return {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in told.items()}


def _tensor(name: str, datatype: str, values: Any) -> InferInput:
    array = np.array(values, dtype=TYPES[datatype])
    tensor = InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor

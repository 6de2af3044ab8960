"""Requests of Triton callers, written by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from tritonclient.grpc.service_pb2 import InferParameter, ModelInferRequest

from router.transport.kserve.asked import Asked, read_asked
from router.transport.kserve.catalogue import Served
from router.transport.kserve.contracts import TEXT, TOKENS

END_ID = 2
TOKENS_MODEL = Served("tensorrt_llm", "test", (END_ID, 0), TOKENS)
TEXT_MODEL = Served("ensemble", "test", (END_ID, 0), TEXT)
FORMS = {"BOOL": "?", "INT32": "i", "UINT64": "Q", "FP32": "f"}


def request_of(*tensors: tuple[str, str, Sequence[int], Sequence[Any]], **fields: Any) -> ModelInferRequest:
    """A request from names, data types, shapes and values."""
    request = ModelInferRequest(**fields)
    for name, datatype, shape, values in tensors:
        request.inputs.add(name=name, datatype=datatype, shape=shape)
        request.raw_input_contents.append(pack(datatype, values))
    return request


def pack(datatype: str, values: Sequence[Any]) -> bytes:
    """Values as raw contents have them."""
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(value.encode())) + value.encode() for value in values)
    return struct.pack(f"<{len(values)}{FORMS[datatype]}", *values)


def tokens_of(*more: tuple[str, str, Sequence[int], Sequence[Any]], **fields: Any) -> ModelInferRequest:
    """A request for token ids that is complete."""
    return request_of(("input_ids", "INT32", [1, 3], [5, 6, 7]), ("request_output_len", "INT32", [1, 1], [16]), *more, **fields)


def text_of(*more: tuple[str, str, Sequence[int], Sequence[Any]], **fields: Any) -> ModelInferRequest:
    """A request for text that is complete."""
    return request_of(("text_input", "BYTES", [1, 1], ["hi"]), ("max_tokens", "INT32", [1, 1], [16]), *more, **fields)


def ask_tokens(*more: tuple[str, str, Sequence[int], Sequence[Any]], **fields: Any) -> Asked:
    """The same, read."""
    return read_asked(tokens_of(*more, **fields), TOKENS_MODEL)


def ask_text(*more: tuple[str, str, Sequence[int], Sequence[Any]], **fields: Any) -> Asked:
    """The same, read."""
    return read_asked(text_of(*more, **fields), TEXT_MODEL)


def flag(name: str) -> tuple[str, str, list[int], list[bool]]:
    """A tensor that says yes."""
    return name, "BOOL", [1, 1], [True]


def parameter(name: str, **value: Any) -> dict[str, InferParameter]:
    """A request's parameters, as `parameter("priority", int64_param=2)`."""
    return {name: InferParameter(**value)}

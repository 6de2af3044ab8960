"""The worker contract on the wire: Triton requests with TensorRT-LLM's tensor names out, lane frames in. See server/triton_model.py.

Uses tritonclient's copy of Triton's protos: they register package `inference`, and a second copy in one process cannot be loaded.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tritonclient.grpc import service_pb2 as triton

from router.model import GenerationRequest, Sampling, WorkerDescription, WorkerFinish, WorkerLoad

MODEL = "tensorrt_llm"

_FORMATS = {"INT32": "i", "INT64": "q", "UINT64": "Q", "FP32": "f", "UINT8": "B"}


class FrameInvalid(ValueError):
    """A response that is no lane frame."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a frame holds for one request; `detail` comes with the last entry of a request."""

    request: int
    tokens: Sequence[int]
    finish: WorkerFinish
    detail: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Frame:
    """One lane frame. `description` comes with the first frame only."""

    sequence: int
    load: WorkerLoad
    description: WorkerDescription | None
    entries: list[Entry]


def attach(lane: str) -> triton.ModelInferRequest:
    """Makes the stream a lane."""
    return _request("attach", lane)


def acknowledge(lane: str, sequence: int) -> triton.ModelInferRequest:
    """Frames up to `sequence` were read."""
    request = _request("ack", lane)
    request.parameters["sequence"].int64_param = sequence
    return request


def cancel(lane: str, numbers: Sequence[int]) -> triton.ModelInferRequest:
    """Ends requests of the lane at the next step."""
    request = _request("cancel", lane)
    _add(request, "request_ids", "INT64", numbers)
    return request


def generate(lane: str, number: int, asked: GenerationRequest) -> triton.ModelInferRequest:
    """One generation whose tokens travel in the lane's frames."""
    request = _request("generate", lane)
    request.id = str(number)
    request.parameters["request"].int64_param = number
    _add(request, "input_ids", "INT32", asked.prompt)
    _add(request, "input_lengths", "INT32", [len(asked.prompt)])
    _add(request, "request_output_len", "INT32", [asked.max_new_tokens])
    for name, datatype, value in _sampling_tensors(asked.sampling):
        _add(request, name, datatype, [value])
    return request


def read_frame(response: triton.ModelInferResponse) -> Frame:
    """A lane frame from Triton's response. Raises FrameInvalid."""
    raw = {output.name: data for output, data in zip(response.outputs, response.raw_output_contents, strict=True)}
    try:
        details = [json.loads(text) for text in _strings(raw["detail"])] if "detail" in raw else []
        return Frame(
            sequence=_numbers(raw["sequence"], "q")[0],
            load=WorkerLoad(*_numbers(raw["load"], "q")),
            description=_read_description(details),
            entries=list(_read_entries(raw, {detail.get("request"): detail for detail in details})),
        )
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, struct.error) as error:
        raise FrameInvalid(f"not a lane frame: {type(error).__name__}") from error


def _read_entries(raw: Mapping[str, bytes], details: Mapping[int | None, Mapping[str, Any]]) -> Iterator[Entry]:
    tokens, at = _numbers(raw["output_ids"], "i"), 0
    for request, count, finish in zip(_numbers(raw["request"], "q"), _numbers(raw["counts"], "i"), raw["finish"], strict=True):
        yield Entry(request, tokens[at : at + count], WorkerFinish(finish), details.get(request))
        at += count
    if at != len(tokens):
        raise ValueError("counts and tokens differ")


def _read_description(details: Sequence[Mapping[str, Any]]) -> WorkerDescription | None:
    for detail in details:
        if "description" in detail:
            told = detail["description"]
            pool = told["total_blocks"] * told["tokens_per_block"]
            same = ("model", "engine", "profile", "context_tokens", "vocabulary", "max_sequences")
            return WorkerDescription(**{name: told[name] for name in same}, pool_tokens=pool)
    return None


def _sampling_tensors(sampling: Sampling) -> Iterator[tuple[str, str, float | int]]:
    for name, datatype, field in _SAMPLING:
        value = getattr(sampling, field)
        if value is not None:
            yield name, datatype, value


_SAMPLING = (
    ("temperature", "FP32", "temperature"),
    ("runtime_top_k", "INT32", "top_k"),
    ("runtime_top_p", "FP32", "top_p"),
    ("seed", "UINT64", "seed"),
    ("repetition_penalty", "FP32", "repetition_penalty"),
    ("presence_penalty", "FP32", "presence_penalty"),
    ("frequency_penalty", "FP32", "frequency_penalty"),
)


def _request(op: str, lane: str) -> triton.ModelInferRequest:
    request = triton.ModelInferRequest(model_name=MODEL, id=op)
    request.parameters["op"].string_param = op
    request.parameters["lane"].string_param = lane
    return request


def _add(request: triton.ModelInferRequest, name: str, datatype: str, values: Sequence[float | int]) -> None:
    request.inputs.add(name=name, datatype=datatype, shape=[len(values)])
    request.raw_input_contents.append(struct.pack(f"<{len(values)}{_FORMATS[datatype]}", *values))


def _numbers(raw: bytes, form: str) -> list[int]:
    return memoryview(raw).cast(form).tolist()  # type: ignore[call-overload, no-any-return]


def _strings(raw: bytes) -> Iterator[str]:
    """Triton's BYTES tensor: each element is its length (uint32, little-endian) and its bytes."""
    at = 0
    while at < len(raw):
        (length,) = struct.unpack_from("<I", raw, at)
        yield raw[at + 4 : at + 4 + length].decode()
        at += 4 + length

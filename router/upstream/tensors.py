"""Triton's tensors in raw form: numbers and texts to bytes and back, and the sampling tensors that both kinds of worker share."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence

from tritonclient.grpc import service_pb2 as triton

from router.model import Guide, Sampling

_FORMATS = {"INT32": "i", "INT64": "q", "UINT64": "Q", "FP32": "f", "BOOL": "?"}


def add_tensor(
    request: triton.ModelInferRequest,
    name: str,
    datatype: str,
    values: Sequence[float | int],
    shape: Sequence[int] = (-1,),
) -> None:
    """Adds an input; a -1 in its shape stands for what the number of values leaves."""
    rest = len(values) // math.prod(size for size in shape if size != -1)
    request.inputs.add(name=name, datatype=datatype, shape=[rest if size == -1 else size for size in shape])
    request.raw_input_contents.append(struct.pack(f"<{len(values)}{_FORMATS[datatype]}", *values))


def add_text(request: triton.ModelInferRequest, name: str, text: str, shape: Sequence[int] = (1,)) -> None:
    """Adds an input that holds one text."""
    data = text.encode()
    request.inputs.add(name=name, datatype="BYTES", shape=shape)
    request.raw_input_contents.append(struct.pack("<I", len(data)) + data)


def sampling_tensors(sampling: Sampling) -> Iterator[tuple[str, str, float | int]]:
    """Name, data type and value of each field that is given."""
    for name, datatype, field in _SAMPLING:
        value = getattr(sampling, field)
        if value is not None:
            yield name, datatype, value


def guide_texts(guide: Guide | None) -> Iterator[tuple[str, str]]:
    """Name and text of the tensors that ask for guided decoding."""
    if guide is not None:
        yield "guided_decoding_guide_type", guide.kind.value
        yield "guided_decoding_guide", guide.text


_SAMPLING = (
    ("temperature", "FP32", "temperature"),
    ("runtime_top_k", "INT32", "top_k"),
    ("runtime_top_p", "FP32", "top_p"),
    ("min_p", "FP32", "min_p"),
    ("seed", "UINT64", "seed"),
    ("repetition_penalty", "FP32", "repetition_penalty"),
    ("presence_penalty", "FP32", "presence_penalty"),
    ("frequency_penalty", "FP32", "frequency_penalty"),
)


def raw_outputs(response: triton.ModelInferResponse) -> dict[str, bytes]:
    """The outputs' bytes by name. Raises ValueError when tensors and contents differ in number."""
    return {output.name: data for output, data in zip(response.outputs, response.raw_output_contents, strict=True)}


def read_numbers(raw: bytes, form: str) -> list[int]:
    """The numbers of a tensor; `form` is that of `struct`. Raises TypeError for a size that does not fit."""
    return memoryview(raw).cast(form).tolist()  # type: ignore[call-overload, no-any-return]


def read_texts(raw: bytes) -> Iterator[str]:
    """A BYTES tensor: each element is its length (uint32, little-endian) and its bytes. Raises struct.error or UnicodeDecodeError."""
    at = 0
    while at < len(raw):
        (length,) = struct.unpack_from("<I", raw, at)
        yield raw[at + 4 : at + 4 + length].decode()
        at += 4 + length

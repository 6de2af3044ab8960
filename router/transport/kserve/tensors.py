"""A request's tensors, read strictly: what is not exactly as its model's contract says is refused by name.

The values are in `raw_input_contents`, one buffer for each input in order, or in each input's typed `contents`; never in both. A tensor may
come with or without the batch dimension. Its size must be what its shape says, to the byte.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tritonclient.grpc.service_pb2 import ModelInferRequest

from router.errors import CallerError, Violation, field_invalid, option_unsupported
from router.transport.kserve.contracts import Contract, Tensor

_SAFE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SHARED_MEMORY = "shared_memory_region"


@dataclass(frozen=True, slots=True)
class Inputs:
    """The values by name, flat; `batched` is whether the prompt came with the batch dimension."""

    values: Mapping[str, Sequence[Any]]
    batched: bool

    def one(self, *names: str) -> Any:
        """The value of the first of these that is given; None if none is."""
        return next((self.values[name][0] for name in names if name in self.values), None)

    def flag(self, name: str) -> bool:
        """Whether a BOOL is given and true."""
        return bool(self.one(name))


def read_inputs(request: ModelInferRequest, contract: Contract) -> Inputs:
    """Raises CallerError FIELD_INVALID or OPTION_UNSUPPORTED."""
    buffers, values, batched = iter(request.raw_input_contents), {}, False
    for index, given in enumerate(request.inputs):
        tensor = contract.inputs.get(given.name)
        if tensor is None:
            raise invalid(_label(given.name, index), "this model has no such input")
        if given.name in values:
            raise invalid(tensor.name, "must be given once")
        is_batched = _read_shape(given, tensor)
        values[tensor.name] = list(_read_values(given, tensor, buffers, raw=bool(request.raw_input_contents)))
        _check_value(tensor, values[tensor.name])
        batched = is_batched if tensor.name == contract.prompt else batched
    if next(buffers, None) is not None:
        raise invalid("raw_input_contents", "must hold one buffer for each input")
    _check_required(values, contract)
    return Inputs(values, batched)


def read_outputs(request: ModelInferRequest, contract: Contract) -> frozenset[str]:
    """The outputs that are wanted; none listed means all. Raises CallerError."""
    for index, wanted in enumerate(request.outputs):
        label = _label(wanted.name, index)
        if wanted.name not in contract.outputs:
            raise invalid(label, "this model has no such output")
        if _SHARED_MEMORY in wanted.parameters:
            raise option_unsupported(label, "a router has no shared memory with its callers")
        if "classification" in wanted.parameters:
            raise option_unsupported(label, "classification is not served")
    return frozenset(wanted.name for wanted in request.outputs) or frozenset(contract.outputs)


def invalid(field: str, description: str) -> CallerError:
    """A tensor or parameter that is wrong."""
    return field_invalid(Violation(field, description))


def _label(name: str, index: int) -> str:
    """A name that is harmless in messages; it may be anything, of any length."""
    return name if _SAFE_NAME.fullmatch(name) else f"tensor {index}"


def _read_shape(given: ModelInferRequest.InferInputTensor, tensor: Tensor) -> bool:
    """Whether there is a batch dimension."""
    if given.datatype != tensor.datatype:
        raise invalid(tensor.name, f"must be {tensor.datatype}")
    shape = tuple(given.shape)
    if _fits(shape, tensor.dims):
        return False
    if not _fits(shape[1:], tensor.dims):
        raise invalid(tensor.name, f"must have the shape {[1, *tensor.dims]}, where -1 is any size")
    if shape[0] != 1:
        raise invalid(tensor.name, "must have a batch size of 1: send a request for each")
    return True


def _fits(shape: Sequence[int], dims: Sequence[int]) -> bool:
    return len(shape) == len(dims) and all(size >= 0 and dim in (-1, size) for size, dim in zip(shape, dims, strict=True))


def _read_values(
    given: ModelInferRequest.InferInputTensor, tensor: Tensor, buffers: Iterator[bytes], *, raw: bool
) -> Sequence[int] | Sequence[float] | Sequence[str]:
    if _SHARED_MEMORY in given.parameters:
        raise option_unsupported(tensor.name, "a router has no shared memory with its callers")
    if raw and given.HasField("contents"):
        raise invalid(tensor.name, "must have either contents or a raw buffer")
    field, form = _FORMS[tensor.datatype]
    if raw:
        values = _unpack(tensor, next(buffers, None), form)
    elif any(told.name != field for told, _ in given.contents.ListFields()):
        raise invalid(tensor.name, f"must be in {field}")
    else:
        values = getattr(given.contents, field)
    if len(values) != math.prod(given.shape):
        raise invalid(tensor.name, f"holds {len(values)} values, and its shape is for {math.prod(given.shape)}")
    return values if form else [_decode(tensor, value) for value in values]


def _unpack(tensor: Tensor, raw: bytes | None, form: str) -> Sequence[Any]:
    if raw is None:
        raise invalid(tensor.name, "has no buffer in raw_input_contents")
    if not form:
        return list(_split(tensor, raw))
    if len(raw) % struct.calcsize(form):
        raise invalid(tensor.name, "its buffer holds a fraction of a value")
    return memoryview(raw).cast(form)  # type: ignore[call-overload, no-any-return]


def _split(tensor: Tensor, raw: bytes) -> Iterator[bytes]:
    """Each text behind its length in four bytes."""
    at = 0
    while at < len(raw):
        start = at + 4
        at = start + int.from_bytes(raw[at:start], "little")
        if start > len(raw) or at > len(raw):
            raise invalid(tensor.name, "its buffer ends within a text")
        yield raw[start:at]


def _decode(tensor: Tensor, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise invalid(tensor.name, "must be UTF-8") from None


def _check_value(tensor: Tensor, values: Sequence[Any]) -> None:
    if tensor.only is not None and values[0] != tensor.only:
        raise option_unsupported(tensor.name, f"only {tensor.only} is served")


def _check_required(values: Mapping[str, Any], contract: Contract) -> None:
    missing = [tensor.name for tensor in contract.inputs.values() if tensor.required and tensor.name not in values]
    if missing:
        raise field_invalid(*(Violation(name, "must be given") for name in missing))


_FORMS = {
    "BOOL": ("bool_contents", "B"),
    "INT32": ("int_contents", "i"),
    "UINT64": ("uint64_contents", "Q"),
    "FP32": ("fp32_contents", "f"),
    "BYTES": ("bytes_contents", ""),
}
"""The member of typed contents, and the form of a raw value in `struct`'s words."""

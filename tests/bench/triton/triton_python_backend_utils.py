"""Triton's `triton_python_backend_utils`, in process: what server/triton_model.py uses of it, for tests that run the model without Triton.

On pytest's path (pyproject.toml). Inside Triton the real module stands before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


class TritonError:
    INTERNAL = 1

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        self.message = message
        self.code = code


class Tensor:
    def __init__(self, name: str, values: np.ndarray[Any, Any]) -> None:
        self._name = name
        self._values = values

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray[Any, Any]:
        return self._values


class InferenceResponse:
    def __init__(self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None) -> None:
        self.output_tensors = output_tensors
        self.error = error


class ResponseSender:
    """Hands responses to `deliver(response or None, final)`; `cancelled` says whether the caller has gone."""

    def __init__(self, deliver: Callable[[InferenceResponse | None, bool], None], cancelled: Callable[[], bool]) -> None:
        self._deliver = deliver
        self._cancelled = cancelled

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        self._deliver(response, bool(flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL))

    def is_cancelled(self) -> bool:
        return self._cancelled()


class Trace:
    def __init__(self, context: str | None) -> None:
        self._context = context

    def get_context(self) -> str | None:
        return self._context


class Metric:
    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = value


class MetricFamily:
    GAUGE = "gauge"

    def __init__(self, name: str, description: str, kind: str) -> None:
        self.metrics: dict[tuple[tuple[str, str], ...], Metric] = {}

    def Metric(self, labels: Mapping[str, str]) -> Metric:
        return self.metrics.setdefault(tuple(sorted(labels.items())), Metric())


class InferenceRequest:
    def __init__(
        self, inputs: Sequence[Tensor], parameters: Mapping[str, Any], sender: ResponseSender, trace_context: str | None = None
    ) -> None:
        self._inputs = inputs
        self._trace_context = trace_context
        self._parameters = json.dumps(parameters)
        self._sender = sender

    def inputs(self) -> Sequence[Tensor]:
        return self._inputs

    def parameters(self) -> str:
        return self._parameters

    def get_response_sender(self) -> ResponseSender:
        return self._sender

    def trace(self) -> Trace:
        return Trace(self._trace_context)

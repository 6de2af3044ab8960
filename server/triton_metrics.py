"""The engine's figures on Triton's /metrics, under TensorRT-LLM's own names, so that dashboards made for it work.

Families and labels are those of the C++ backend's custom_metrics_reporter; step time and the batch of the last step are ours. They are set
with each heartbeat: setting one is a round trip to Triton.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import triton_python_backend_utils as pb_utils

from server.engine.base import Load

_FAMILIES = (
    ("nv_trt_llm_request_metrics", "TRT LLM request metrics", "request_type", ("active", "max", "scheduled", "waiting")),
    (
        "nv_trt_llm_kv_cache_block_metrics",
        "TRT LLM KV cache block metrics",
        "kv_cache_block_type",
        ("max", "free", "used", "tokens_per", "fraction"),
    ),
    ("tidegate_engine_step_metrics", "Last engine step: microseconds and sequences", "step_type", ("microseconds", "sequences")),
)


class EngineMetrics:
    """Gauges of one model, by its name and version in Triton; `max_sequences` run at once at most."""

    def __init__(self, model: str, version: str, max_sequences: int) -> None:
        self._max_sequences = max_sequences
        # Families are kept: Triton drops the metrics of one that is collected as garbage.
        self._families = [pb_utils.MetricFamily(name, text, pb_utils.MetricFamily.GAUGE) for name, text, _, _ in _FAMILIES]
        self._gauges: dict[tuple[str, str], Any] = {}
        for family, (name, _, label, values) in zip(self._families, _FAMILIES, strict=True):
            for value in values:
                labels = {"model": model, "version": version, label: value}
                self._gauges[name, value] = family.Metric(labels=labels)

    def observe(self, load: Load) -> None:
        """Sets all gauges."""
        for key, value in _figures(load, self._max_sequences):
            self._gauges[key].set(value)


def _figures(load: Load, max_sequences: int) -> Iterator[tuple[tuple[str, str], float]]:
    requests, blocks, step = (name for name, _, _, _ in _FAMILIES)
    used = load.total_blocks - load.free_blocks
    yield (requests, "active"), load.active + load.queued
    yield (requests, "max"), max_sequences
    yield (requests, "scheduled"), load.active
    yield (requests, "waiting"), load.queued
    yield (blocks, "max"), load.total_blocks
    yield (blocks, "free"), load.free_blocks
    yield (blocks, "used"), used
    yield (blocks, "tokens_per"), load.tokens_per_block
    yield (blocks, "fraction"), used / load.total_blocks
    yield (step, "microseconds"), load.step_us
    yield (step, "sequences"), load.active

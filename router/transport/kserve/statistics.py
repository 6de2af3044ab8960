"""What Triton's statistics say, of the requests that came by this door."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tritonclient.grpc.service_pb2 import ModelStatistics, ModelStatisticsResponse

from router.transport.kserve.contracts import VERSION


class Statistics:
    """Counts and times by model since the start."""

    def __init__(self, names: Iterable[str]) -> None:
        self._told = {name: ModelStatistics(name=name, version=VERSION) for name in names}

    def record(self, name: str, begun: float, started: float | None, *, failed: bool) -> None:
        """A request has ended that began, and was taken by a worker, at these times of `time.perf_counter`."""
        told, now = self._told[name], time.perf_counter()
        stats = told.inference_stats
        times = [(stats.fail if failed else stats.success, now - begun), (stats.queue, (started or now) - begun)]
        if started is not None:
            told.inference_count += 1
            told.execution_count += 1
            told.last_inference = time.time_ns() // 1_000_000
            # A router computes neither inputs nor outputs; perf_analyzer ends when the three counts differ.
            times += (stats.compute_input, 0.0), (stats.compute_infer, now - started), (stats.compute_output, 0.0)
        for target, seconds in times:
            target.count += 1
            target.ns += round(seconds * 1e9)

    def tell(self, names: Iterable[str]) -> ModelStatisticsResponse:
        """The statistics of these models."""
        return ModelStatisticsResponse(model_stats=[self._told[name] for name in names])

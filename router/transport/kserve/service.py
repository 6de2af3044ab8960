"""inference.GRPCInferenceService: what Triton's own clients and load tools call.

A router has several workers, which may be of different kinds and change at any time. So it tells of models itself and never passes on what
a worker says of itself, and what changes a server or its memory has no meaning here: it is refused, in words for whoever might think that
it was done. What runs inference is stream.py and turns.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceServicer

from router.config import Limits, Timeouts
from router.errors import TidegateError, option_unsupported, reader_too_slow
from router.models import Models
from router.pipeline import Pipeline
from router.telemetry import Metrics
from router.transport.health import Health
from router.transport.kserve.answers import Reply
from router.transport.kserve.asked import read_asked
from router.transport.kserve.catalogue import Catalogue, Served
from router.transport.kserve.contracts import PLATFORM, VERSION, configure, describe
from router.transport.kserve.statistics import Statistics
from router.transport.kserve.stream import InferStream
from router.transport.kserve.turns import Turns
from router.transport.requests import current_call, current_principal, readable
from router.transport.writer import Context, Writer, begin_answer

SERVICE = "inference.GRPCInferenceService"
EXTENSIONS = ("model_configuration", "statistics")


class KServeService(GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Triton's service. Liveness and readiness are open to everybody, as grpc.health.v1 is."""

    def __init__(self, *, pipeline: Pipeline, models: Models, health: Health, limits: Limits, timeouts: Timeouts, metrics: Metrics) -> None:
        self._catalogue = Catalogue(models)
        self._health = health
        self._limits = limits
        self._timeouts = timeouts
        self._metrics = metrics
        self._statistics = Statistics(it.name for it in self._catalogue)
        self._turns = Turns(pipeline, self._statistics)
        self._writers: dict[InferStream, Writer] = {}

    async def ServerLive(self, request: triton.ServerLiveRequest, context: Context) -> triton.ServerLiveResponse:
        return triton.ServerLiveResponse(live=True)

    async def ServerReady(self, request: triton.ServerReadyRequest, context: Context) -> triton.ServerReadyResponse:
        return triton.ServerReadyResponse(ready=self._health.serves())

    async def ModelReady(self, request: triton.ModelReadyRequest, context: Context) -> triton.ModelReadyResponse:
        """A model that does not exist is not ready, as in Triton."""
        asked = readable(request)
        try:
            served = self._catalogue.find(asked.name, asked.version)
        except TidegateError:
            return triton.ModelReadyResponse(ready=False)
        return triton.ModelReadyResponse(ready=self._health.serves(f"model/{served.model}"))

    async def ServerMetadata(self, request: triton.ServerMetadataRequest, context: Context) -> triton.ServerMetadataResponse:
        return triton.ServerMetadataResponse(name=PLATFORM, version=version("tidegate-gateway"), extensions=EXTENSIONS)

    async def ModelMetadata(self, request: triton.ModelMetadataRequest, context: Context) -> triton.ModelMetadataResponse:
        served = self._find(readable(request))
        return describe(served.name, served.contract)

    async def ModelConfig(self, request: triton.ModelConfigRequest, context: Context) -> triton.ModelConfigResponse:
        served = self._find(readable(request))
        return triton.ModelConfigResponse(config=configure(served.name, served.contract))

    async def ModelStatistics(self, request: triton.ModelStatisticsRequest, context: Context) -> triton.ModelStatisticsResponse:
        asked = readable(request)
        served = [self._find(asked)] if asked.name else [it for it in self._catalogue if _may_use(it)]
        return self._statistics.tell(it.name for it in served)

    async def ModelInfer(self, request: triton.ModelInferRequest, context: Context) -> triton.ModelInferResponse:
        given = readable(request)
        reply = Reply(read_asked(given, self._catalogue.find(given.model_name, given.model_version)))
        if reply.asked.form.streaming or reply.asked.stop:
            raise option_unsupported(reply.asked.served.contract.streaming, "streams and their ends need ModelStreamInfer")
        turn = self._turns.start(current_call(), reply)
        try:
            await asyncio.wait({turn})
        finally:
            turn.cancel()
            await asyncio.wait({turn})
        if reply.failure is not None:
            raise reply.failure
        response = triton.ModelInferResponse()
        reply.write(response)
        return response

    async def ModelStreamInfer(self, request_iterator: AsyncIterator[triton.ModelInferRequest], context: Context) -> None:
        self._turns.require_open()
        stream = InferStream(current_call(), self._turns, self._catalogue, self._limits)
        writer = self._writers[stream] = Writer(await begin_answer(context))
        reader = asyncio.create_task(stream.read(request_iterator))
        self._metrics.streams.inc()
        try:
            await writer.send_all(stream)
            if stream.fault is not None:
                raise stream.fault
        finally:
            self._metrics.streams.dec()
            del self._writers[stream]
            reader.cancel()
            await stream.close()

    async def RepositoryIndex(self, request: triton.RepositoryIndexRequest, context: Context) -> triton.RepositoryIndexResponse:
        readable(request)
        current_principal().require_operator()
        index = triton.RepositoryIndexResponse()
        for served in self._catalogue:
            is_served = self._health.serves(f"model/{served.model}")
            index.models.add(name=served.name, version=VERSION, state="READY" if is_served else "UNAVAILABLE")
        return index

    async def _refuse(self, request: Any, context: Context) -> None:
        readable(request)
        current_principal().require_operator()
        raise option_unsupported("method", "a router has several workers and changes none of them; ask the worker's own Triton")

    RepositoryModelLoad = RepositoryModelUnload = _refuse
    SystemSharedMemoryStatus = SystemSharedMemoryRegister = SystemSharedMemoryUnregister = _refuse
    CudaSharedMemoryStatus = CudaSharedMemoryRegister = CudaSharedMemoryUnregister = _refuse
    TraceSetting = LogSettings = _refuse

    async def watch_streams(self) -> None:
        """A task: ends streams whose caller does not read."""
        limit_s = self._timeouts.slow_reader_s
        while True:
            await asyncio.sleep(min(1.0, limit_s / 4))
            for writer in list(self._writers.values()):
                if writer.writing and time.monotonic() - writer.changed > limit_s:
                    writer.interrupt(reader_too_slow())

    async def drain(self, grace_s: float) -> None:
        """Takes no more turns, lets the running ones finish for `grace_s` seconds, then ends them as failed."""
        self._turns.close()
        for stream in list(self._writers):
            stream.finish_input()
        await self._turns.drain(grace_s)

    def _find(self, asked: Any) -> Served:
        """The model that a request names. Raises CallerError MODEL_UNKNOWN or PERMISSION_DENIED."""
        served = self._catalogue.find(asked.name, asked.version)
        current_principal().require_model(served.model)
        return served


def _may_use(served: Served) -> bool:
    try:
        current_principal().require_model(served.model)
    except TidegateError:
        return False
    return True

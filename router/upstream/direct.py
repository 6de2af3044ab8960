"""The link to a stock worker: one Triton stream per generation, spoken to as TensorRT-LLM's own model is.

One stream each because Triton knows no other cancel that is safe: a cancelled stream ends every request on it, and the model's own `stop`
request is answered under the id of the generation it stops. The stream's metadata carries the trace context.

Streams tell when the connection breaks, but nothing tells that an idle worker is gone. So the link asks whether the model is ready, once a
second, and at once when a stream broke: the answer says whether the worker is lost or only that stream. A worker that answers and is not
ready, as one that shuts down, gets no more generations and may end those it has.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from contextlib import aclosing, suppress

import grpc
from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from router.config import Timeouts
from router.errors import TidegateError, engine_failed, no_worker, worker_lost, worker_stalled
from router.model import GenerationRequest, WorkerDescription, WorkerLoad
from router.upstream import stock
from router.upstream.contract import MODEL
from router.upstream.link import Generation, OnTokens, Owner, cancel_all, exchange, watch_period

log = logging.getLogger("tidegate.direct")


class Direct:
    """The link over one connection; `address` is for the log."""

    def __init__(
        self,
        address: str,
        stub: GRPCInferenceServiceStub,
        model: stock.StockModel,
        timeouts: Timeouts,
        owner: Owner,
    ) -> None:
        self.description: WorkerDescription | None = None
        self.others = 0
        """The stock model does not tell."""
        self._address = address
        self._stub = stub
        self._model = model
        self._timeouts = timeouts
        self._owner = owner
        self._name = uuid.uuid4().hex
        self._last_number = 0
        self._running: dict[Generation, asyncio.Task[None]] = {}
        self._streams: set[asyncio.Task[None]] = set()
        self._doubt = asyncio.Event()

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def load(self) -> WorkerLoad:
        """What this router has there: the stock model does not tell its load."""
        return WorkerLoad(active=self.running)

    @property
    def silence_s(self) -> float:
        """None is known: the stock model says nothing unasked."""
        return 0.0

    async def serve(self) -> None:
        try:
            while True:
                await self._ask_ready()
                self._end_stalled()
                with suppress(TimeoutError):
                    async with asyncio.timeout(watch_period(self._timeouts)):
                        await self._doubt.wait()
                self._doubt.clear()
        finally:
            self._set_ready(False)
            for generation in list(self._running):
                self._end(generation, worker_lost())
            await cancel_all(self._streams)

    def submit(self, request: GenerationRequest, on_tokens: OnTokens) -> Generation:
        if self.description is None:
            raise no_worker()
        self._last_number += 1
        message = stock.generate(f"{self._name}-{self._last_number}", request, self._model, random.getrandbits(63))
        generation = Generation(self._last_number, on_tokens, self._cancel)
        task = asyncio.create_task(self._run(generation, message, request))
        self._running[generation] = task
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)
        return generation

    async def _ask_ready(self) -> None:
        question = triton.ModelReadyRequest(name=MODEL)
        self._set_ready((await self._stub.ModelReady(question, timeout=self._timeouts.worker_silence_s)).ready)

    def _set_ready(self, ready: bool) -> None:
        if ready != (self.description is not None):
            self.description = self._model.description if ready else None
            self._owner.on_state()

    async def _run(self, generation: Generation, message: triton.ModelInferRequest, request: GenerationRequest) -> None:
        deltas = stock.Deltas(self._model.end_ids, request.max_new_tokens)
        try:
            async with aclosing(exchange(self._stub, message, request.trace_headers)) as responses:
                async for response in responses:
                    self._take(generation, response, deltas)
            self._end(generation, worker_lost())
        except grpc.RpcError:
            self._doubt.set()
            self._end(generation, worker_lost())
        except stock.ResponseInvalid as invalid:
            log.error("worker %s: %s", self._address, invalid)
            self._end(generation, engine_failed())

    def _take(self, generation: Generation, response: triton.ModelStreamInferResponse, deltas: stock.Deltas) -> None:
        if response.error_message:
            log.warning("worker %s: %s", self._address, response.error_message)
            self._end(generation, stock.to_error(response.error_message, has_tokens=generation.has_tokens))
            return
        delta = deltas.take(stock.read_response(response.infer_response))
        if generation not in self._running:
            return
        if delta.finish:
            del self._running[generation]
        if delta.tokens or delta.finish:
            generation.take(delta, time.monotonic())

    def _end_stalled(self) -> None:
        now = time.monotonic()
        for generation in [it for it in self._running if it.is_stalled(now, self._timeouts)]:
            self._cancel(generation)
            generation.end(worker_stalled())

    def _cancel(self, generation: Generation) -> None:
        """Ends its stream, which is what ends it in the engine."""
        if task := self._running.pop(generation, None):
            task.cancel()

    def _end(self, generation: Generation, error: TidegateError) -> None:
        """Does nothing when it has ended."""
        self._running.pop(generation, None)
        generation.end(error)

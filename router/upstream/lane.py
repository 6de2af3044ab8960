"""A lane: the one long-lived stream between this router and a worker of ours, on which all its tokens arrive.

The worker sends one frame per engine step with the new tokens of every turn this router has there. The reader takes a frame and, without
awaiting, feeds each turn its tokens; the turns' sessions are flushed when the loop next turns. So the cost is per step and per connection,
not per token, and there is no task, queue or generator per token.

Life: attach → first frame describes the worker, the lane is up → frames → the stream breaks, or stays silent for too long: every generation
on it fails, and worker.py opens a new lane. Frames are numbered and acknowledged (see server/lanes.py for why).

A traced generation is submitted on a stream of its own, whose metadata carries the trace context: Triton reads one per stream. Its tokens
still come in the lane's frames.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import grpc
from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from router.config import Timeouts
from router.errors import TidegateError, no_worker, worker_lost, worker_stalled
from router.model import GenerationRequest, WorkerDelta, WorkerDescription, WorkerLoad
from router.upstream import contract
from router.upstream.access import Access
from router.upstream.link import Generation, LinkBroken, OnTokens, Owner, cancel_all, exchange, watch_period

ACKNOWLEDGE_EVERY = 16

log = logging.getLogger("tidegate.lane")


class Lane:
    """The lane over one connection; `address` is for the log. `serve()` is its task, all else is called from the same event loop."""

    def __init__(self, address: str, stub: GRPCInferenceServiceStub, timeouts: Timeouts, owner: Owner, access: Access) -> None:
        self.description: WorkerDescription | None = None
        self.load = WorkerLoad()
        self.others = 0
        """Generations of other routers, when the last frame was made."""
        self._address = address
        self._stub = stub
        self._timeouts = timeouts
        self._owner = owner
        self._access = access
        self._name = uuid.uuid4().hex
        self._running: dict[int, Generation] = {}
        self._last_number = 0
        self._outbox: deque[triton.ModelInferRequest] = deque()
        self._wake = asyncio.Event()
        self._streams: set[asyncio.Task[None]] = set()
        self._sequence = 0
        self._heard = time.monotonic()

    @property
    def running(self) -> int:
        """Generations that run here for this router."""
        return len(self._running)

    @property
    def silence_s(self) -> float:
        """Seconds since the last frame. A worker of ours sends one each second even when idle, unless a step takes longer."""
        return time.monotonic() - self._heard

    async def serve(self) -> None:
        """Keeps the lane open. When it breaks, fails all that runs and raises LinkBroken or RpcError."""
        call = self._stub.ModelStreamInfer()
        writer = asyncio.create_task(self._write(call))  # when it fails, the reader tells why
        tasks = {asyncio.create_task(self._read(call)), asyncio.create_task(self._watch())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._break()
            await cancel_all(tasks | {writer} | self._streams)
        for task in done:
            task.result()

    def submit(self, request: GenerationRequest, on_tokens: OnTokens) -> Generation:
        """Starts a generation. `on_tokens` is called from the frame loop and must not wait. Raises WorkerError NO_WORKER."""
        if self.description is None:
            raise no_worker()
        self._last_number += 1
        generation = Generation(self._last_number, on_tokens, self._cancel)
        self._running[generation.number] = generation
        if not self.description.isolates_salts:  # it would refuse one
            request = replace(request, cache_salt="")
        message = contract.generate(self._name, generation.number, request)
        if request.trace_headers:
            self._submit_traced(message, generation, request.trace_headers)
        else:
            self._send(message)
        return generation

    # The connection.

    async def _read(self, call: Any) -> None:
        self._send(contract.attach(self._name, self._owner.router))
        async for response in call:
            if response.error_message:
                self._take_error(response)
            else:
                self._take(contract.read_frame(response.infer_response))
        raise LinkBroken("the worker closed the stream")

    async def _write(self, call: Any) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outbox:
                await call.write(self._outbox.popleft())

    async def _watch(self) -> None:
        """Ends the lane when it is silent, and generations that make no progress."""
        limits, period = self._timeouts, watch_period(self._timeouts)
        while True:
            due = time.monotonic() + period
            await asyncio.sleep(period)
            now = time.monotonic()
            if now - due > period:  # this process stood still itself; what came meanwhile is still to be read
                self._heard = now
                continue
            if now - self._heard > limits.worker_silence_s:
                raise LinkBroken(f"no frame for {limits.worker_silence_s:g} s")
            for generation in list(self._running.values()):
                if generation.is_stalled(now, limits):
                    self._cancel(generation)
                    generation.end(worker_stalled())

    def _send(self, message: triton.ModelInferRequest) -> None:
        self._outbox.append(self._sign(message))
        self._wake.set()

    def _submit_traced(self, message: triton.ModelInferRequest, generation: Generation, headers: Mapping[str, str]) -> None:
        task = asyncio.create_task(self._run_traced(self._sign(message), generation, headers))
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)

    async def _run_traced(self, message: triton.ModelInferRequest, generation: Generation, headers: Mapping[str, str]) -> None:
        try:
            async with aclosing(exchange(self._stub, message, headers)) as responses:
                async for response in responses:
                    if response.error_message:
                        self._turn_away(generation.number, response.error_message)
        except grpc.RpcError:
            self._fail(generation.number, worker_lost())

    def _sign(self, message: triton.ModelInferRequest) -> triton.ModelInferRequest:
        if signature := self._access.sign(self._name):
            message.parameters["credential"].string_param = signature
        return message

    # Frames.

    def _take(self, frame: contract.Frame) -> None:
        if frame.sequence != self._sequence + 1:
            raise LinkBroken("a frame is missing")
        self._sequence, self._heard = frame.sequence, time.monotonic()
        if frame.sequence % ACKNOWLEDGE_EVERY == 0:
            self._send(contract.acknowledge(self._name, frame.sequence))
        if frame.description:
            self._owner.check(frame.description)
            self.description = frame.description
            self._owner.on_state()
        if frame.receipts:
            self._owner.on_receipts(frame.receipts)
        self._take_load(frame.load)
        if frame.kv_events:
            self._owner.on_kv_events(frame.kv_events)
        for number, delta in frame.entries:
            self._feed(number, delta)

    def _take_load(self, load: WorkerLoad) -> None:
        # By the worker's own count: of those that run for this router here, some are on their way there and some have ended.
        before, self.load = self.others, load
        self.others = max(0, load.active + load.queued - load.own)
        if self.others < before:
            self._owner.on_freed()

    def _feed(self, number: int, delta: WorkerDelta) -> None:
        generation = self._running.get(number)
        if generation is None:  # cancelled while the frame travelled
            return
        if delta.finish:
            del self._running[number]
        if delta.refusal:
            # The option only: what follows may quote the caller's schema.
            log.warning("worker %s refused a request: %s", self._address, delta.refusal.partition(":")[0])
        generation.take(delta, self._heard)

    def _take_error(self, response: triton.ModelStreamInferResponse) -> None:
        """Triton tells errors as text on an OK stream; a number is the generation's, anything else concerns the lane."""
        request = response.infer_response.id
        if not request.isdecimal():
            raise LinkBroken(response.error_message)
        self._turn_away(int(request), response.error_message)

    # Endings.

    def _turn_away(self, number: int, text: str) -> None:
        """A generation was not taken. That the worker goes down may be told here before the lane's end tells it, or after."""
        log.error("worker %s: %s", self._address, text)
        self._fail(number, contract.to_error(text))

    def _cancel(self, generation: Generation) -> None:
        if self._running.pop(generation.number, None):
            self._send(contract.cancel(self._name, [generation.number]))

    def _fail(self, number: int, error: TidegateError) -> None:
        generation = self._running.pop(number, None)
        if generation:
            generation.end(error)

    def _break(self) -> None:
        """Takes no more, and fails what runs."""
        if self.description:
            self.description = None
            self._owner.on_state()
        for number in list(self._running):
            self._fail(number, worker_lost())

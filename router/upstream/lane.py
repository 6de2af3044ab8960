"""A lane: the one long-lived stream between this router and a worker, on which all its tokens arrive.

The worker sends one frame per engine step with the new tokens of every turn this router has there. The reader takes a frame and, without
awaiting, feeds each turn its tokens; the turns' sessions are flushed when the loop next turns. So the cost is per step and per connection,
not per token, and there is no task, queue or generator per token.

Life: connect → attach → first frame describes the worker, the lane is up → frames → the stream breaks, or stays silent for too long: every
generation on it fails, and the lane connects anew, as a new lane. Frames are numbered and acknowledged (see server/lanes.py for why).

A traced generation is submitted on a stream of its own, whose metadata carries the trace context: Triton reads one per stream. Its tokens
still come in the lane's frames.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from router.config import Timeouts
from router.errors import TidegateError, engine_refused, internal, no_worker, worker_lost, worker_stalled
from router.model import GenerationRequest, WorkerDescription, WorkerFinish, WorkerLoad
from router.upstream import contract

ACKNOWLEDGE_EVERY = 16
_BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a new connection must not inherit the old one's back-off
    ("grpc.enable_retries", 0),  # the router decides what is tried again
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)

OnTokens = Callable[[Sequence[int], WorkerFinish, Mapping[str, Any] | None], None]

log = logging.getLogger("tidegate.lane")


class LaneBroken(Exception):
    """The lane cannot go on; the message says why, for the log."""


class Generation:
    """One generation on a lane. Close it in `finally`: what still runs then is cancelled in the engine."""

    def __init__(self, number: int, on_tokens: OnTokens, close: Callable[[Generation], None]) -> None:
        self.number = number
        self.on_tokens = on_tokens
        self.started = self.progress = time.monotonic()
        self.has_tokens = False
        self._close = close
        self._ended: asyncio.Future[TidegateError | None] = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        """Returns when the worker ended it or it was closed. Raises WorkerError when it cannot go on."""
        error = await self._ended
        if error is not None:
            raise error

    def close(self) -> None:
        """Ends it. Does nothing when it has ended."""
        self._close(self)
        self.end(None)

    def end(self, error: TidegateError | None) -> None:
        """Wakes who waits."""
        if not self._ended.done():
            self._ended.set_result(error)


class Lane:
    """The lane to one worker. `run()` is its task; everything else is called from the same event loop."""

    def __init__(self, address: str, timeouts: Timeouts, on_change: Callable[[], None]) -> None:
        self.address = address
        self.description: WorkerDescription | None = None
        self.load = WorkerLoad()
        self._timeouts = timeouts
        self._on_change = on_change
        self._running: dict[int, Generation] = {}
        self._last_number = 0
        self._streams: set[asyncio.Task[None]] = set()
        self._sequence = 0
        self._heard = 0.0
        self._reset()

    @property
    def up(self) -> bool:
        """Whether generations may be submitted."""
        return self.description is not None

    @property
    def running(self) -> int:
        """Generations that run here for this router."""
        return len(self._running)

    async def run(self) -> None:
        """Keeps the lane open until cancelled."""
        failures = 0
        while True:
            try:
                await self._serve()
            except (LaneBroken, contract.FrameInvalid, grpc.RpcError) as error:
                log.warning("lane to %s: %s", self.address, _describe(error))
            failures = 0 if self.up else failures + 1
            self._break()
            await asyncio.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])

    def submit(self, request: GenerationRequest, on_tokens: OnTokens) -> Generation:
        """Starts a generation. `on_tokens` is called from the frame loop and must not wait. Raises WorkerError NO_WORKER."""
        if not self.up:
            raise no_worker()
        self._last_number += 1
        generation = Generation(self._last_number, on_tokens, self._cancel)
        self._running[generation.number] = generation
        message = contract.generate(self._name, generation.number, request)
        if request.trace_headers:
            self._submit_traced(message, generation, request.trace_headers)
        else:
            self._send(message)
        return generation

    # The connection.

    async def _serve(self) -> None:
        async with grpc.aio.insecure_channel(self.address, options=_CHANNEL_OPTIONS) as channel:
            self._stub = GRPCInferenceServiceStub(channel)
            call = self._stub.ModelStreamInfer()
            writer = asyncio.create_task(self._write(call))  # when it fails, the reader tells why
            tasks = {asyncio.create_task(self._read(call)), asyncio.create_task(self._watch())}
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _cancel_all(tasks | {writer} | self._streams)
            for task in done:
                task.result()

    async def _read(self, call: Any) -> None:
        self._send(contract.attach(self._name))
        async for response in call:
            if response.error_message:
                self._take_error(response)
            else:
                self._take(contract.read_frame(response.infer_response))
        raise LaneBroken("the worker closed the stream")

    async def _write(self, call: Any) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outbox:
                await call.write(self._outbox.popleft())

    async def _watch(self) -> None:
        """Ends the lane when it is silent, and generations that make no progress."""
        limits = self._timeouts
        while True:
            await asyncio.sleep(min(1.0, limits.worker_silence_s / 4, limits.idle_s / 4, limits.first_token_s / 4))
            now = time.monotonic()
            if now - self._heard > limits.worker_silence_s:
                raise LaneBroken(f"no frame for {limits.worker_silence_s:g} s")
            for generation in list(self._running.values()):
                limit = limits.idle_s if generation.has_tokens else limits.first_token_s
                if now - generation.progress > limit:
                    self._cancel(generation)
                    generation.end(worker_stalled())

    def _send(self, message: triton.ModelInferRequest) -> None:
        self._outbox.append(message)
        self._wake.set()

    def _submit_traced(self, message: triton.ModelInferRequest, generation: Generation, headers: Mapping[str, str]) -> None:
        task = asyncio.create_task(self._run_traced(message, generation, headers))
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)

    async def _run_traced(self, message: triton.ModelInferRequest, generation: Generation, headers: Mapping[str, str]) -> None:
        try:
            async for response in self._stub.ModelStreamInfer(iter((message,)), metadata=tuple(headers.items())):
                if response.error_message:
                    self._fail(generation.number, engine_refused())
        except grpc.RpcError:
            self._fail(generation.number, worker_lost())

    # Frames.

    def _take(self, frame: contract.Frame) -> None:
        if frame.sequence != self._sequence + 1:
            raise LaneBroken("a frame is missing")
        self._sequence, self._heard, self.load = frame.sequence, time.monotonic(), frame.load
        if frame.sequence % ACKNOWLEDGE_EVERY == 0:
            self._send(contract.acknowledge(self._name, frame.sequence))
        if frame.description:
            self.description = frame.description
            log.info("lane to %s is up: %s", self.address, frame.description)
            self._on_change()
        for entry in frame.entries:
            self._feed(entry)

    def _feed(self, entry: contract.Entry) -> None:
        generation = self._running.get(entry.request)
        if generation is None:  # cancelled while the frame travelled
            return
        generation.progress, generation.has_tokens = self._heard, True
        if entry.finish is not WorkerFinish.RUNNING:
            del self._running[entry.request]
        if entry.finish is WorkerFinish.REFUSED:
            log.error("worker %s refused a request: %s", self.address, (entry.detail or {}).get("error"))
        try:
            generation.on_tokens(entry.tokens, entry.finish, entry.detail)
        except Exception:
            log.exception("a turn failed on its tokens")
            self._cancel(generation)
            generation.end(internal())
        if entry.finish is not WorkerFinish.RUNNING:
            generation.end(None)

    def _take_error(self, response: triton.ModelStreamInferResponse) -> None:
        """Triton tells errors as text on an OK stream; a number is the generation's, anything else concerns the lane."""
        request = response.infer_response.id
        if not request.isdecimal():
            raise LaneBroken(response.error_message)
        log.error("worker %s: %s", self.address, response.error_message)
        self._fail(int(request), engine_refused())

    # Endings.

    def _cancel(self, generation: Generation) -> None:
        if self._running.pop(generation.number, None):
            self._send(contract.cancel(self._name, [generation.number]))

    def _fail(self, number: int, error: TidegateError) -> None:
        generation = self._running.pop(number, None)
        if generation:
            generation.end(error)

    def _break(self) -> None:
        """Fails what runs and forgets the connection."""
        was_up = self.up
        for number in list(self._running):
            self._fail(number, worker_lost())
        self._reset()
        if was_up:
            self._on_change()

    def _reset(self) -> None:
        self._name = uuid.uuid4().hex
        self._outbox: deque[triton.ModelInferRequest] = deque()
        self._wake = asyncio.Event()
        self._sequence = 0
        self._heard = time.monotonic()
        self.description = None


def _describe(error: Exception) -> str:
    return f"{error.code().name}: {error.details()}" if isinstance(error, grpc.aio.AioRpcError) else str(error)


async def _cancel_all(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

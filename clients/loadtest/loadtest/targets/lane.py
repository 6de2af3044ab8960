"""A Triton model of ours as the router itself reads it: one lane, no router. The zero from which the router's own cost is counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import grpc
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from loadtest.record import Record
from loadtest.request import Request
from loadtest.targets.kserve import Encode, encode_words
from router.config import Timeouts
from router.errors import TidegateError
from router.model import GenerationRequest, Sampling, WorkerDelta, WorkerFinish
from router.upstream.access import PLAIN
from router.upstream.lane import Lane
from router.upstream.link import LinkBroken, Owner


class LaneTarget:
    """A worker, read through a lane."""

    def __init__(self, lane: Lane, encode: Encode) -> None:
        self._lane = lane
        self._encode = encode

    @classmethod
    @asynccontextmanager
    async def open(cls, address: str, encode: Encode = encode_words) -> AsyncIterator[LaneTarget]:
        """Attaches a lane; leaving closes it."""
        ready = asyncio.Event()
        async with grpc.aio.insecure_channel(address, options=(("grpc.max_receive_message_length", -1),)) as channel:
            lane = Lane(address, GRPCInferenceServiceStub(channel), Timeouts(), Owner("loadtest", ready.set), PLAIN)
            serving = asyncio.create_task(lane.serve())
            try:
                await ready.wait()
                yield cls(lane, encode)
            finally:
                serving.cancel()
                with suppress(asyncio.CancelledError, LinkBroken, grpc.RpcError):
                    await serving

    async def run(self, request: Request, record: Record) -> None:
        prompt = [number for message in request.messages for number in self._encode(message.content)]
        asked = GenerationRequest(prompt, request.output_tokens, Sampling())
        record.send(time.perf_counter())
        try:
            generation = self._lane.submit(asked, lambda delta: take_delta(record, delta))
            try:
                await generation.wait()
            finally:
                generation.close()
        except TidegateError as error:
            record.fail(time.perf_counter(), error.reason)


def take_delta(record: Record, delta: WorkerDelta) -> None:
    """A step's news of one generation into its record."""
    now = time.perf_counter()
    if delta.tokens:
        record.arrive(now, tokens=len(delta.tokens))
    if delta.finish in (WorkerFinish.END_ID, WorkerFinish.STOP_WORDS, WorkerFinish.LENGTH):
        record.complete(now)
    elif delta.finish is not WorkerFinish.RUNNING:
        record.fail(now, delta.finish.name)

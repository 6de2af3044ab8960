"""ChatService over gRPC: translates, and keeps streams in order. What happens to a turn is in pipeline.py."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tidegate.v1 import event_pb2
from tidegate.v1.chat_service_pb2 import (
    CompleteRequest,
    CompleteResponse,
    ConverseRequest,
    CountTokensRequest,
    CountTokensResponse,
    StreamRequest,
    StreamResponse,
)
from tidegate.v1.chat_service_pb2_grpc import ChatServiceServicer

from router.config import Limits, Timeouts
from router.errors import TidegateError, describe_fault, draining, internal, reader_too_slow
from router.pipeline import Pipeline
from router.telemetry import Metrics
from router.transport.outbox import Outbox
from router.transport.requests import current_call, read_prompt, read_turn, readable
from router.transport.session import Session, cancel_turn
from router.transport.single import Collector, Relay
from router.transport.writer import Context, Writer

log = logging.getLogger("tidegate.transport")


class ChatService(ChatServiceServicer):
    """The public service."""

    def __init__(self, pipeline: Pipeline, limits: Limits, timeouts: Timeouts, metrics: Metrics) -> None:
        self._pipeline = pipeline
        self._limits = limits
        self._timeouts = timeouts
        self._metrics = metrics
        self._writers: dict[Session, Writer] = {}
        self._single_turns: set[asyncio.Task[Any]] = set()
        self._draining = False

    async def Converse(self, request_iterator: AsyncIterator[ConverseRequest], context: Context) -> None:
        self._refuse_when_draining()
        session = Session(current_call(), self._pipeline, self._limits)
        writer = self._writers[session] = Writer(context)
        reader = asyncio.create_task(_read(session, request_iterator))
        self._metrics.streams.inc()
        try:
            await writer.send_all(session.outbox)
            if session.fault is not None:
                raise session.fault
        finally:
            self._metrics.streams.dec()
            del self._writers[session]
            reader.cancel()
            await session.close()

    async def Stream(self, request: StreamRequest, context: Context) -> None:
        answer = Relay(Outbox(StreamResponse, current_call().request_id))
        async with self._single_turn(request, answer) as turn:
            turn.add_done_callback(lambda _: answer.outbox.close())
            await Writer(context).send_all(answer.outbox)
        answer.raise_failure()

    async def Complete(self, request: CompleteRequest, context: Context) -> CompleteResponse:
        answer = Collector()
        async with self._single_turn(request, answer) as turn:
            await asyncio.wait({turn})
        return answer.response()

    async def CountTokens(self, request: CountTokensRequest, context: Context) -> CountTokensResponse:
        asked = readable(request)
        prompt, room = await self._pipeline.count_tokens(current_call(), read_prompt(asked))
        return CountTokensResponse(prompt_tokens=prompt, context_tokens=room)

    async def drain(self, grace_s: float) -> None:
        """Takes no more turns, lets the running ones finish for `grace_s` seconds, then ends them as failed."""
        self._draining = True
        for session in list(self._writers):
            session.announce_end(grace_s)
        running = {writer.task for writer in self._writers.values()} | self._single_turns
        if running:
            await asyncio.wait(running, timeout=grace_s)
        for session in list(self._writers):
            session.cancel_turns(draining())
        for turn in self._single_turns:
            cancel_turn(turn, draining())

    async def watch_streams(self) -> None:
        """A task: sends heartbeats on quiet streams and ends those whose caller does not read."""
        limits = self._timeouts
        while True:
            await asyncio.sleep(min(1.0, limits.heartbeat_s / 4, limits.slow_reader_s / 4))
            for session, writer in list(self._writers.items()):
                quiet = time.monotonic() - writer.changed
                if writer.writing and quiet > limits.slow_reader_s:
                    session.fail(reader_too_slow())
                    writer.interrupt(reader_too_slow())
                elif not writer.writing and quiet > limits.heartbeat_s:
                    session.outbox.put_stream_event(heartbeat=event_pb2.Heartbeat())

    @asynccontextmanager
    async def _single_turn(self, request: StreamRequest | CompleteRequest, answer: Relay | Collector) -> AsyncIterator[asyncio.Task[None]]:
        """The running turn of a call that has one. Leaving it early cancels the turn; it has left the engine when this returns."""
        self._refuse_when_draining()
        asked = read_turn(readable(request).spec)
        turn = asyncio.create_task(self._pipeline.run(current_call(), asked, answer.put))
        self._single_turns.add(turn)
        try:
            yield turn
        finally:
            turn.cancel()
            await asyncio.wait({turn})
            self._single_turns.discard(turn)
        if not turn.cancelled():
            turn.result()  # what broke the pipeline itself must not look like an empty answer

    def _refuse_when_draining(self) -> None:
        if self._draining:
            raise draining()


async def _read(session: Session, requests: AsyncIterator[ConverseRequest]) -> None:
    """A stream's reading task."""
    try:
        async for request in requests:
            session.receive(readable(request))
        session.finish_input()
    except TidegateError as error:
        session.fail(error)
    except Exception as error:
        log.error("reading a stream failed; request %s: %s", current_call().request_id, describe_fault(error))
        session.fail(internal())

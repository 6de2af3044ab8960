"""ChatService over gRPC: translates, and keeps streams in order. What happens to a turn is in pipeline.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

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

from router.errors import draining
from router.pipeline import Pipeline
from router.transport.outbox import Outbox
from router.transport.requests import current_call, current_principal, read_prompt, read_turn, readable
from router.transport.single import Collector, Relay
from router.transport.streams import Streams
from router.transport.turns import drain_turns
from router.transport.writer import Context, Writer, begin_answer


class ChatService(ChatServiceServicer):
    """The public service."""

    def __init__(self, pipeline: Pipeline, streams: Streams) -> None:
        self._pipeline = pipeline
        self._streams = streams
        self._single_turns: set[asyncio.Task[Any]] = set()
        self._draining = False

    async def Converse(self, request_iterator: AsyncIterator[ConverseRequest], context: Context) -> None:
        who = current_principal()
        write = await begin_answer(context)
        await self._streams.serve(request_iterator, write, current_call(), (who.tenant, who.user))

    async def Stream(self, request: StreamRequest, context: Context) -> None:
        answer = Relay(Outbox(StreamResponse, current_call().request_id))
        async with self._single_turn(request, answer) as turn:
            turn.add_done_callback(lambda _: answer.outbox.close())
            await Writer(await begin_answer(context)).send_all(answer.outbox)
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
        """Takes no more single turns, lets the running ones finish for `grace_s` seconds, then ends them as failed."""
        self._draining = True
        await drain_turns(self._single_turns, grace_s)

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

"""POST /v1/chat/completions and /v1/completions: a request's body to turns, and their events to one JSON object or to a stream."""

from __future__ import annotations

import time
from typing import TypeVar

from router.config import Config
from router.errors import Violation, field_invalid
from router.model import Started, TurnRequest
from router.transport.http.chat import ChatRequest
from router.transport.http.chunks import ChunkWriter
from router.transport.http.completions import CompletionRequest
from router.transport.http.exchange import Exchange
from router.transport.http.fields import drop_unknown, read_fields
from router.transport.http.forms import CHAT, COMPLETION, Form, Json
from router.transport.http.headers import degraded_headers, started_headers
from router.transport.http.steps import Steps
from router.transport.http.stream import EventStream
from router.transport.http.strict_json import parse_json
from router.transport.http.turns import TurnRunner
from router.transport.http.whole import WholeAnswer

Asked = TypeVar("Asked", ChatRequest, CompletionRequest)


class Answers:
    """The endpoints that answer."""

    def __init__(self, turns: TurnRunner, config: Config) -> None:
        self._turns = turns
        self._config = config
        self._steps = Steps()

    async def chat(self, exchange: Exchange) -> None:
        """Continues a conversation."""
        await self._answer(exchange, await self._read(ChatRequest, exchange), CHAT)

    async def complete(self, exchange: Exchange) -> None:
        """Continues texts."""
        await self._answer(exchange, await self._read(CompletionRequest, exchange), COMPLETION)

    async def _read(self, kind: type[Asked], exchange: Exchange) -> Asked:
        value = parse_json(await exchange.read_body(self._config.limits.max_message_bytes))
        if self._config.http.unknown_options == "ignore" and (ignored := drop_unknown(kind, value)):
            exchange.tell_ignored(ignored)
        asked = read_fields(kind, value)
        most = self._config.http.max_choices
        if not 1 <= asked.choices <= most:
            raise field_invalid(Violation("n", f"must ask for 1 to {most} answers, for all prompts together"))
        return asked

    async def _answer(self, exchange: Exchange, asked: ChatRequest | CompletionRequest, form: Form) -> None:
        if asked.stream:
            await self._stream(exchange, asked, form)
        else:
            await self._send_whole(exchange, asked.turns(), form)

    async def _stream(self, exchange: Exchange, asked: ChatRequest | CompletionRequest, form: Form) -> None:
        with_usage = asked.stream_options.include_usage

        def open_writer(started: Started) -> ChunkWriter:
            return ChunkWriter(form, _head(exchange, form.id_prefix, form.chunk_object, started), with_usage=with_usage)

        stream = EventStream(asked.choices, open_writer, self._steps, with_usage=with_usage)
        async with self._turns.running(exchange, asked.turns(), stream.put):
            await stream.send(exchange, hold_s=self._config.http.hold_s, heartbeat_s=self._config.timeouts.heartbeat_s)

    async def _send_whole(self, exchange: Exchange, turns: list[TurnRequest], form: Form) -> None:
        answer = WholeAnswer(len(turns), form)
        async with self._turns.running(exchange, turns, answer.put):
            await answer.wait()
        assert answer.started is not None, "a finished turn was started"
        head = _head(exchange, form.id_prefix, form.whole_object, answer.started)
        headers = started_headers(answer.started) + degraded_headers(answer.degraded)
        await exchange.answer_json(head | answer.choices(), headers=headers)


def _head(exchange: Exchange, prefix: str, kind: str, started: Started) -> Json:
    """What a response and each of its chunks begin with; the id names the turn in the ledger."""
    answer_id = f"{prefix}{started.turn_id or exchange.call.request_id}"
    return {"id": answer_id, "object": kind, "created": int(time.time()), "model": started.model}

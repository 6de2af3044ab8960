"""Any server with OpenAI's chat completions over HTTP and server-sent events: a gateway, vLLM, TensorRT-LLM's own server, ours.

An answer is complete when a `finish_reason` came and the stream ended after it. `[DONE]` alone, or the end of the body alone, is a cut
answer: gateways add `[DONE]` to answers whose server broke off.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import h11

from loadtest.record import Outcome, Record, Usage
from loadtest.request import Request
from loadtest.targets.http import ConnectionBroken, ConnectionPool, Origin
from loadtest.targets.sse import EventParser

PATH = "/v1/chat/completions"
MAX_ERROR_BYTES = 64 * 1024
BUSY = 429
UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class OpenAIOptions:
    """`url` is the server's root, or the whole address of its completions. `{tenant}` in a header's value stands for the tenant."""

    url: str
    model: str
    headers: Mapping[str, str] = field(default_factory=dict)
    exact_length: bool = False
    """Sends `ignore_eos` and `min_tokens`, vLLM's extensions, so that answers have as many tokens as asked for."""


class OpenAITarget:
    """A server that speaks OpenAI's API."""

    def __init__(self, options: OpenAIOptions) -> None:
        self._options = options
        self._origin = Origin.of(options.url)
        self._path = urlsplit(options.url).path.rstrip("/") or PATH
        self._pool = ConnectionPool(self._origin)

    @classmethod
    @asynccontextmanager
    async def open(cls, options: OpenAIOptions) -> AsyncIterator[OpenAITarget]:
        """Leaving closes the connections. Raises ValueError for a URL that is none."""
        target = cls(options)
        try:
            yield target
        finally:
            target._pool.close()

    async def run(self, request: Request, record: Record) -> None:
        body = json.dumps(self._body(request), ensure_ascii=False).encode()
        head = self._head(request.tenant, len(body))
        record.send(time.perf_counter())
        try:
            connection = await self._pool.take()
        except ConnectionBroken as error:
            record.fail(time.perf_counter(), error.reason)
            return
        try:
            connection.send(head, body, AnswerReader(record))
            await connection.wait_done()
        finally:
            self._pool.give_back(connection)

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._options.model,
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
            "max_tokens": request.output_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._options.exact_length:
            body |= {"ignore_eos": True, "min_tokens": request.output_tokens}
        return body

    def _head(self, tenant: str, length: int) -> h11.Request:
        host = f"[{self._origin.host}]" if ":" in self._origin.host else self._origin.host
        headers = {
            "host": f"{host}:{self._origin.port}",
            "content-type": "application/json",
            "accept": "text/event-stream",
            "content-length": str(length),
            **{name.lower(): value.format(tenant=tenant) for name, value in self._options.headers.items()},
        }
        return h11.Request(method="POST", target=self._path, headers=list(headers.items()))


class AnswerReader:
    """One response into its record."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._events = EventParser()
        self._status = 0
        self._headers: Mapping[str, str] = {}
        self._is_stream = False
        self._error_body = b""
        self._has_finished = False

    @property
    def wants_more(self) -> bool:
        """Servers may leave a stream open after an error: nothing that counts follows it."""
        return self._record.outcome is not Outcome.FAILED

    def take_head(self, status: int, headers: Mapping[str, str]) -> None:
        self._status, self._headers = status, headers
        self._is_stream = status == 200 and headers.get("content-type", "").startswith("text/event-stream")

    def take_body(self, at: float, data: bytes) -> None:
        if self._is_stream:
            for event in self._events.feed(data):
                self._take_event(at, event)
        elif len(self._error_body) < MAX_ERROR_BYTES:
            self._error_body += data

    def take_end(self, at: float) -> None:
        if self._is_stream:
            self._end(at, "STREAM_ENDED")
        else:
            self._refuse(at)

    def break_off(self, at: float, reason: str) -> None:
        self._end(at, reason)

    def _take_event(self, at: float, event: str) -> None:
        if event == "[DONE]":
            self._end(at, "FINISH_MISSING")
            return
        try:
            self._take_chunk(at, json.loads(event))
        except (ValueError, TypeError, KeyError, AttributeError):
            self._record.fail(at, "CHUNK_UNREADABLE")

    def _take_chunk(self, at: float, chunk: Mapping[str, Any]) -> None:
        if chunk.get("error"):
            self._record.fail(at, reason_of(chunk["error"], "STREAM_ERROR"))
        if chunk.get("usage"):
            self._record.usage = read_usage(chunk["usage"])
        for choice in chunk.get("choices") or ():
            self._has_finished |= bool(choice.get("finish_reason"))
            delta = choice.get("delta") or {}
            text = delta.get("content") or delta.get("reasoning_content") or choice.get("text") or ""
            if text or delta.get("tool_calls"):
                self._record.arrive(at, text)

    def _end(self, at: float, otherwise: str) -> None:
        if self._has_finished:
            self._record.complete(at)
        else:
            self._record.fail(at, otherwise)

    def _refuse(self, at: float) -> None:
        if self._status == 200:
            self._record.fail(at, "NOT_A_STREAM")
            return
        try:
            reason = reason_of(json.loads(self._error_body)["error"], f"HTTP_{self._status}")
        except (ValueError, TypeError, KeyError):
            reason = f"HTTP_{self._status}"
        self._record.retry_after_s = read_seconds(self._headers.get("retry-after", ""))
        shed = self._status == BUSY or (self._status == UNAVAILABLE and "retry-after" in self._headers)
        self._record.fail(at, reason, outcome=Outcome.SHED if shed else Outcome.FAILED)


def read_seconds(text: str) -> float:
    """Of `Retry-After`; 0 for a date, which no server of ours sends, and for what is neither."""
    return float(text) if text.isascii() and text.isdecimal() else 0.0


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Token counts of a usage object."""
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    return Usage(int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0), None if cached is None else int(cached))


def reason_of(error: Any, otherwise: str) -> str:
    """An error object's code or type in UPPER_SNAKE. Its message may quote the prompt and is not looked at."""
    if not isinstance(error, Mapping):
        return otherwise
    named = next((error[key] for key in ("code", "type") if isinstance(error.get(key), str) and error[key]), "")
    reason = re.sub(r"\W+", "_", named).upper()[:64]
    return f"HTTP_{reason}" if reason.isdecimal() else reason or otherwise

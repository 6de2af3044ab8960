"""The same turn through every door, told in the same words, so that the doors can be compared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate import TidegateError
from tidegate.v1.event_pb2 import Event, FinishReason
from tidegate.v1.turn_pb2 import TurnSpec

from router.transport.http.errors import code_of_reason
from tests.bench.http import CHAT, connect
from tests.bench.resuming import ResumingCaller
from tests.bench.router import Router
from tests.bench.wires import GRPC, SOCKET, Face


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a caller learns of a turn; `calls` are names and arguments of tool calls, `error` is the HTTP API's code."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str = ""
    usage: tuple[int, int, int] = (0, 0, 0)
    token_bytes: bytes = b""
    error: str = ""


Door = Callable[[Router, TurnSpec, Mapping[str, Any]], Awaitable[Outcome]]


def conversing(face: Face, *, cuts: bool = False) -> Door:
    """A turn on a Converse stream; with `cuts` its connection is lost behind every frame, and the stream resumed."""

    async def ask(router: Router, spec: TurnSpec, body: Mapping[str, Any]) -> Outcome:
        caller = ResumingCaller(5 if cuts else 0)
        async with face.at(router) as dial:
            await caller.connect(dial)
            turn = await caller.start(spec)
            await (caller.read_with_cuts(turn, dial) if cuts else caller.read_until_ended(turn))
        return outcome_of(caller.events)

    return ask


async def by_stream(router: Router, spec: TurnSpec, body: Mapping[str, Any]) -> Outcome:
    """A streamed chat completion."""
    async with connect(router.http) as caller:
        response = await caller.ask(CHAT, {**body, "stream": True, "stream_options": {"include_usage": True}})
    if response.status != 200:
        return Outcome(error=response.error["code"])
    outcome = Outcome()
    for chunk in response.chunks:
        outcome = _add_chunk(outcome, chunk)
    return outcome


async def by_whole(router: Router, spec: TurnSpec, body: Mapping[str, Any]) -> Outcome:
    """A chat completion in one piece."""
    async with connect(router.http) as caller:
        response = await caller.ask(CHAT, body)
    if response.status != 200:
        return Outcome(error=response.error["code"])
    (choice,) = response.json["choices"]
    return Outcome(
        text=choice["message"]["content"] or "",
        calls=tuple((it["function"]["name"], it["function"]["arguments"]) for it in choice["message"].get("tool_calls", ())),
        finish=choice["finish_reason"],
        usage=_read_usage(response.json),
        token_bytes=_token_bytes(choice["logprobs"]),
    )


DOORS: dict[str, Door] = {
    "grpc": conversing(GRPC),
    "grpc resumed": conversing(GRPC, cuts=True),
    "websocket": conversing(SOCKET),
    "websocket resumed": conversing(SOCKET, cuts=True),
    "sse": by_stream,
    "whole": by_whole,
}


def outcome_of(events: list[Event]) -> Outcome:
    """A Converse turn's events in the same words."""
    outcome = Outcome()
    for event in events:
        match event.WhichOneof("event"):
            case "text_delta":
                outcome = replace(outcome, text=outcome.text + event.text_delta.text)
            case "tool_call_delta":
                delta = event.tool_call_delta
                outcome = _add_call(outcome, delta.index, delta.name, delta.arguments_json)
            case "logprobs":
                data = b"".join(token.token_bytes for token in event.logprobs.tokens)
                outcome = replace(outcome, token_bytes=outcome.token_bytes + data)
            case "usage":
                usage = event.usage
                outcome = replace(outcome, usage=(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens))
            case "finished":
                outcome = replace(outcome, finish=FinishReason.Name(event.finished.finish_reason).removeprefix("FINISH_REASON_").lower())
            case "failed":
                outcome = replace(outcome, error=code_of_reason(TidegateError(event.failed.status).reason))
    return outcome


def _add_chunk(outcome: Outcome, chunk: Any) -> Outcome:
    if "error" in chunk:
        return replace(outcome, error=chunk["error"]["code"])
    if chunk.get("usage"):
        return replace(outcome, usage=_read_usage(chunk))
    (choice,) = chunk["choices"]
    for call in choice["delta"].get("tool_calls", ()):
        outcome = _add_call(outcome, call["index"], call["function"].get("name", ""), call["function"]["arguments"])
    return replace(
        outcome,
        text=outcome.text + choice["delta"].get("content", ""),
        finish=choice["finish_reason"] or outcome.finish,
        token_bytes=outcome.token_bytes + _token_bytes(choice["logprobs"]),
    )


def _add_call(outcome: Outcome, index: int, name: str, arguments: str) -> Outcome:
    calls = [*outcome.calls, ("", "")][: max(len(outcome.calls), index + 1)]
    calls[index] = (calls[index][0] + name, calls[index][1] + arguments)
    return replace(outcome, calls=tuple(calls))


def _read_usage(response: Any) -> tuple[int, int, int]:
    usage = response["usage"]
    return usage["prompt_tokens"], usage["completion_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def _token_bytes(logprobs: Any) -> bytes:
    return b"".join(bytes(token["bytes"]) for token in (logprobs or {"content": ()})["content"])

"""The two forms of answers, chat and plain completions, whole and in chunks: how a choice, log probabilities and token counts look."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from router.model import FinishReason, TokenLogprob, ToolCall, Usage
from router.tools import ToolCallDelta

Json = dict[str, Any]

FINISH_REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.TOOL_CALLS: "tool_calls",
    FinishReason.BUDGET: "length",
}
"""A cancelled turn has none: it is not a complete answer."""

_LEAST_LOGPROB = -9999.0
"""OpenAI's number for a token that could not have been chosen; JSON has no infinity."""


@dataclass(frozen=True, slots=True)
class Form:
    """One API's way to write answers."""

    id_prefix: str
    whole_object: str
    chunk_object: str
    opening: Json | None
    """What a choice begins with when it is streamed."""
    whole_text: Callable[[str, Sequence[ToolCall]], Json]
    chunk_text: Callable[[str], Json]
    logprobs: Callable[[Sequence[TokenLogprob]], Json]

    def choice(self, index: int, content: Json, logprobs: Sequence[TokenLogprob], finish: str | None) -> Json:
        """An entry of `choices`."""
        told = self.logprobs(logprobs) if logprobs else None
        return {"index": index, **content, "logprobs": told, "finish_reason": finish}


def write_calls(deltas: Iterable[ToolCallDelta]) -> Json:
    """New pieces of tool calls as a chunk's content; those of one call are one."""
    calls: dict[int, Json] = {}
    for delta in deltas:
        call = calls.setdefault(delta.index, {"index": delta.index, "function": {"arguments": ""}})
        if delta.id:
            call |= {"id": delta.id, "type": "function", "function": {"name": delta.name, "arguments": ""}}
        call["function"]["arguments"] += delta.arguments
    return {"delta": {"tool_calls": list(calls.values())}}


def write_usage(usage: Usage) -> Json:
    """A usage object; cached tokens are part of the prompt's."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def add_usage(left: Usage, right: Usage) -> Usage:
    """What several answers cost together."""
    pairs = zip(_counts(left), _counts(right), strict=True)
    return Usage(*(one + other for one, other in pairs))


def _counts(usage: Usage) -> tuple[int, int, int]:
    return usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens


def _chat_message(text: str, calls: Sequence[ToolCall]) -> Json:
    message = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
    told = [{"id": it.id, "type": "function", "function": {"name": it.name, "arguments": it.arguments}} for it in calls]
    return {"message": message | ({"tool_calls": told} if told else {})}


def _chat_logprobs(tokens: Sequence[TokenLogprob]) -> Json:
    return {"content": [_chat_logprob(token) for token in tokens], "refusal": None}


def _chat_logprob(token: TokenLogprob) -> Json:
    return {"token": _text_of(token), "logprob": _finite(token.logprob), "bytes": list(token.data), "top_logprobs": []}


def _plain_logprobs(tokens: Sequence[TokenLogprob]) -> Json:
    return {
        "tokens": [_text_of(token) for token in tokens],
        "token_logprobs": [_finite(token.logprob) for token in tokens],
        "top_logprobs": None,
        "text_offset": None,
    }


def _text_of(token: TokenLogprob) -> str:
    return token.data.decode("utf-8", "replace")


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST_LOGPROB)


CHAT = Form(
    id_prefix="chatcmpl-",
    whole_object="chat.completion",
    chunk_object="chat.completion.chunk",
    opening={"delta": {"role": "assistant", "content": ""}},
    whole_text=_chat_message,
    chunk_text=lambda text: {"delta": {"content": text}},
    logprobs=_chat_logprobs,
)
COMPLETION = Form(
    id_prefix="cmpl-",
    whole_object="text_completion",
    chunk_object="text_completion",
    opening=None,
    whole_text=lambda text, _: {"text": text},
    chunk_text=lambda text: {"text": text},
    logprobs=_plain_logprobs,
)

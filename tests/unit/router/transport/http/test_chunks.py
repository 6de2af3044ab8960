"""Chunks on the wire, byte by byte where clients are particular."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.model import Queued, TokenLogprob, Usage
from router.tools import ToolCallDelta
from router.transport.http.chunks import ChunkWriter, write_place
from router.transport.http.forms import CHAT, COMPLETION, Form

HEAD: dict[str, Any] = {"id": "x-1", "object": "chunk", "created": 7, "model": "m"}


def writer(form: Form = CHAT, *, with_usage: bool = False) -> ChunkWriter:
    return ChunkWriter(form, HEAD, with_usage=with_usage)


def value_of(event: bytes) -> Any:
    """The JSON of one event."""
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    return json.loads(event.removeprefix(b"data: "))


def test_the_chunks_of_a_chat() -> None:
    """Role, text, finish, and counts; each begins with the same head."""
    chunks = [writer().opening(0), writer().text(0, "hi"), writer().finish(0, "stop"), writer().usage(Usage(5, 3, 2))]
    assert [value_of(chunk) for chunk in chunks] == [
        HEAD | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}]},
        HEAD | {"choices": [{"index": 0, "delta": {"content": "hi"}, "logprobs": None, "finish_reason": None}]},
        HEAD | {"choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]},
        HEAD
        | {
            "choices": [],
            "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8, "prompt_tokens_details": {"cached_tokens": 2}},
        },
    ]


def test_the_chunks_of_a_plain_completion() -> None:
    """Text and finish; nothing opens a choice."""
    plain = writer(COMPLETION)
    assert plain.opening(0) == b""
    assert value_of(plain.text(1, "hi"))["choices"] == [{"index": 1, "text": "hi", "logprobs": None, "finish_reason": None}]
    assert value_of(plain.finish(1, "length"))["choices"] == [{"index": 1, "text": "", "logprobs": None, "finish_reason": "length"}]


def test_usage_is_null_where_it_was_asked_for() -> None:
    """In every chunk but the last, as OpenAI has it; not there at all where it was not asked for."""
    asked, not_asked = writer(with_usage=True), writer()
    assert [value_of(it)["usage"] for it in (asked.opening(0), asked.text(0, "a"), asked.finish(0, "stop"))] == [None] * 3
    assert not [it for it in (not_asked.opening(0), not_asked.text(0, "a")) if "usage" in value_of(it)]


@pytest.mark.parametrize("form", [CHAT, COMPLETION])
@given(text=st.text())
def test_any_text_is_one_ascii_line(form: Form, text: str) -> None:
    """Whatever the text, the event is a single line of ASCII that holds it; the prepared parts make no difference."""
    chunks = writer(form)
    for _ in range(2):
        event = chunks.text(3, text)
        assert event.isascii()
        (choice,) = value_of(event)["choices"]
        told = choice["delta"]["content"] if form is CHAT else choice["text"]
        assert (choice["index"], told) == (3, text)


def test_tool_calls() -> None:
    """Id and name come with the first piece; pieces of one call that leave together are one."""
    first = [ToolCallDelta(0, "c0", "look", '{"x"'), ToolCallDelta(0, arguments=":1}"), ToolCallDelta(1, "c1", "go", "")]
    (choice,) = value_of(writer().calls(0, first))["choices"]
    assert choice["delta"]["tool_calls"] == [
        {"index": 0, "id": "c0", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}},
        {"index": 1, "id": "c1", "type": "function", "function": {"name": "go", "arguments": ""}},
    ]
    (choice,) = value_of(writer().calls(0, [ToolCallDelta(1, arguments="{}")]))["choices"]
    assert choice["delta"]["tool_calls"] == [{"index": 1, "function": {"arguments": "{}"}}]


def test_log_probabilities() -> None:
    """One entry for each token, with its bytes; minus infinity, which JSON does not have, is OpenAI's number for it."""
    tokens = [TokenLogprob(1, b"\xf0\x9f", -0.5), TokenLogprob(2, b"a", -math.inf)]
    (chat,) = value_of(writer().logprobs(0, "a", tokens))["choices"]
    assert chat["logprobs"]["content"] == [
        {"token": "\ufffd", "logprob": -0.5, "bytes": [0xF0, 0x9F], "top_logprobs": []},
        {"token": "a", "logprob": -9999.0, "bytes": [97], "top_logprobs": []},
    ]
    (plain,) = value_of(writer(COMPLETION).logprobs(0, "a", tokens))["choices"]
    assert (plain["text"], plain["logprobs"]["tokens"], plain["logprobs"]["token_logprobs"]) == ("a", ["\ufffd", "a"], [-0.5, -9999.0])


def test_a_place_in_the_queue_is_no_event() -> None:
    """It stands in a comment and in a field that the standard does not know, so a parser gives nothing."""
    written = write_place(Queued(3, 1.5, 0.5, 4.0))
    assert written == b': queued\ntidegate: {"queued":{"position":3,"eta_s":1.5,"low_s":0.5,"high_s":4.0}}\n'
    assert b"data" not in written

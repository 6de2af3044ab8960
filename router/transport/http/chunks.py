"""Chunks of a streamed answer as server-sent events; what is the same in all of them is encoded once for the stream.

All is ASCII, other characters being escaped: no cut of the body by a proxy falls inside a character, and no client's idea of a line break
falls into a text. A comment or a place in the queue has no blank line behind it: OpenAI's client for Go took every blank
line for an event, and one without data for broken JSON (openai-go#556).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quote

from router.model import Queued, TokenLogprob, Usage
from router.tools import ToolCallDelta
from router.transport.http.forms import Form, Json, write_calls, write_usage

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n"

_MARK = "\0"
_NULL_USAGE = {"usage": None}


class ChunkWriter:
    """Writes the chunks of one response."""

    __slots__ = ("_around", "_form", "_head", "_usage")

    def __init__(self, form: Form, head: Json, *, with_usage: bool) -> None:
        """`head` is what all chunks begin with; `with_usage` says whether the caller asked for the chunk with token counts."""
        self._form = form
        self._head = head
        self._usage: Json = _NULL_USAGE if with_usage else {}
        self._around: dict[int, tuple[bytes, bytes]] = {}

    def opening(self, index: int) -> bytes:
        """The first chunk of a choice, where the form has one."""
        if self._form.opening is None:
            return b""
        return self._write(self._form.choice(index, self._form.opening, (), None))

    def text(self, index: int, text: str) -> bytes:
        """New text: the one chunk that is written in every engine step."""
        before, after = self._around.get(index) or self._split(index)
        return b"%b%b%b" % (before, quote(text).encode(), after)

    def logprobs(self, index: int, text: str, tokens: Sequence[TokenLogprob]) -> bytes:
        """New text and the log probabilities of its tokens; either may be ahead of the other."""
        return self._write(self._form.choice(index, self._form.chunk_text(text), tokens, None))

    def calls(self, index: int, deltas: Sequence[ToolCallDelta]) -> bytes:
        """New pieces of tool calls."""
        return self._write(self._form.choice(index, write_calls(deltas), (), None))

    def finish(self, index: int, reason: str) -> bytes:
        """The last chunk of a choice."""
        content = {"delta": {}} if self._form.opening is not None else self._form.chunk_text("")
        return self._write(self._form.choice(index, content, (), reason))

    def usage(self, usage: Usage) -> bytes:
        """The chunk with the token counts of all choices, which has none itself."""
        return write_event(self._head | {"choices": [], "usage": write_usage(usage)})

    def _split(self, index: int) -> tuple[bytes, bytes]:
        chunk = self._write(self._form.choice(index, self._form.chunk_text(_MARK), (), None))
        before, _, after = chunk.partition(quote(_MARK).encode())
        self._around[index] = before, after
        return before, after

    def _write(self, choice: Json) -> bytes:
        return write_event(self._head | {"choices": [choice]} | self._usage)


def write_event(value: Json) -> bytes:
    """A value as the data of an event."""
    return b"data: %b\n\n" % _compact(value)


def write_place(queued: Queued) -> bytes:
    """A turn's place in the queue, in a field that the standard bids clients to ignore."""
    return b": queued\ntidegate: %b\n" % _compact({"queued": queued._asdict()})


def _compact(value: Json) -> bytes:
    return _ENCODER.encode(value).encode()


_ENCODER = json.JSONEncoder(separators=(",", ":"))

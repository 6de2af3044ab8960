"""One of a request's answers while it is streamed."""

from __future__ import annotations

from dataclasses import dataclass, field

from router.model import TokenLogprob
from router.tools import ToolCallDelta
from router.transport.http.chunks import ChunkWriter


@dataclass(slots=True)
class Choice:
    """What of an answer is not sent yet; `finish` is empty while it runs."""

    index: int
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    calls: list[ToolCallDelta] = field(default_factory=list)
    finish: str = ""
    has_ended: bool = False
    _is_open: bool = False

    @property
    def has_news(self) -> bool:
        """Whether there is anything to send."""
        return bool(self.texts or self.calls or self.logprobs or self.finish)

    def take_chunks(self, writer: ChunkWriter) -> bytes:
        """All that is new, as chunks: several pieces of text are one, and so are those of calls."""
        texts = self.texts
        if self._is_open and len(texts) == 1 and not (self.calls or self.logprobs or self.finish):  # nearly every time
            return writer.text(self.index, texts.pop())
        opening = b"" if self._is_open else writer.opening(self.index)
        self._is_open = True
        return b"".join((opening, self._take_content(writer), self._take_calls(writer), self._take_finish(writer)))

    def _take_content(self, writer: ChunkWriter) -> bytes:
        text, logprobs = "".join(self.texts), self.logprobs
        self.texts, self.logprobs = [], []
        if logprobs:
            return writer.logprobs(self.index, text, logprobs)
        return writer.text(self.index, text) if text else b""

    def _take_calls(self, writer: ChunkWriter) -> bytes:
        calls, self.calls = self.calls, []
        return writer.calls(self.index, calls) if calls else b""

    def _take_finish(self, writer: ChunkWriter) -> bytes:
        reason, self.finish = self.finish, ""
        return writer.finish(self.index, reason) if reason else b""

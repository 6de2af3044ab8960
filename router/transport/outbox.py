"""What one stream has still to send: a frame in the making.

Turns put events in from the lane's frame loop; the stream's writer takes the frame when gRPC has taken the last one. All that came in
between leaves at once, so a slow caller gets fewer and larger frames, and consecutive text of a turn or tool call is joined: the memory
of a caller that does not read is bounded by the tokens of its running turns. A frame is sealed well before gRPC's default limit of 4 MiB,
and in JSON mostly before the 1 MiB that clients of WebSockets take.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from google.protobuf.duration_pb2 import Duration
from tidegate.v1 import event_pb2 as pb
from tidegate.v1.chat_service_pb2 import ConverseResponse, StreamResponse

from router.model import Degraded, Failed, Finished, FinishReason, Logprobs, Queued, Started, TextDelta, TokenLogprob, TurnEvent, Usage
from router.tools import ToolCallDelta
from router.transport.status import to_status

Frame = TypeVar("Frame", bound=ConverseResponse | StreamResponse)

FRAME_CHARS = 256 * 1024
"""A frame is sealed at this many characters (at most 4 bytes each), an event or a log probability counting as 64: at most about 1 MiB."""
_EVENT_CHARS = 64

_ANSWER = -1
"""What a text belongs to that is no tool call's arguments; those belong to the call of an index."""

STREAM = 0
"""The turn number of events that concern the stream itself."""


class Outbox(Generic[Frame]):
    """Collects events and hands them out as frames."""

    def __init__(self, frame_type: type[Frame], request_id: str, sequences: Mapping[int, int] | None = None) -> None:
        """`sequences` are the numbers of the last events of turns that were told of before."""
        self._frame_type = frame_type
        self._request_id = request_id
        self._frame = frame_type()
        self._chars = 0
        self._sealed: deque[Frame] = deque()
        self._texts: list[tuple[pb.Event, int, list[str]]] = []
        self._open_texts: dict[int, tuple[int, list[str]]] = {}
        self._sequences: defaultdict[int, int] = defaultdict(int, sequences or {})
        self._news = asyncio.Event()
        self._closed = False

    def put(self, turn: int, events: Sequence[TurnEvent]) -> None:
        """Adds a turn's events. Ignored once closed: the caller is gone."""
        if self._closed:
            return
        for event in events:
            if isinstance(event, TextDelta):
                self._put_text(turn, event.text)
            elif isinstance(event, ToolCallDelta):
                self._put_call(turn, event)
            else:
                self._open_texts.pop(turn, None)
                _WRITERS[type(event)](self._add(turn), event, self._request_id)
                if isinstance(event, Logprobs):
                    self._chars += _EVENT_CHARS * len(event.tokens)
        if self._chars >= FRAME_CHARS:
            self._seal()
        self._news.set()

    def put_stream_event(self, **event: Any) -> None:
        """Adds an event of the stream itself, as `ready=Ready(...)`."""
        if not self._closed:
            self._add(STREAM).MergeFrom(pb.Event(**event))
            self._news.set()

    def pass_on(self, event: pb.Event) -> None:
        """Adds a turn's event as another router made it, under a number of its own. Ignored once closed."""
        if self._closed:
            return
        self._open_texts.pop(event.turn, None)
        copy = self._add(event.turn)
        sequence = copy.sequence
        copy.MergeFrom(event)
        copy.sequence = sequence
        self._news.set()

    async def take(self) -> Frame | None:
        """The next frame, waiting for one; None when closed and empty."""
        while (frame := self.pop()) is None:
            if self._closed:
                return None
            await self._news.wait()
            self._news.clear()
        return frame

    def pop(self) -> Frame | None:
        """The next frame, None while there is none."""
        if not self._sealed:
            if not self._frame.events:
                return None
            self._seal()
        return self._sealed.popleft()

    def forget(self, turn: int) -> None:
        """Drops what is kept about a turn that has ended."""
        self._sequences.pop(turn, None)

    def close(self) -> None:
        """Nothing more comes; `take` gives what is there, then None."""
        self._closed = True
        self._news.set()

    def reopen(self) -> None:
        """More comes after all."""
        self._closed = False

    def _put_text(self, turn: int, text: str) -> None:
        """Pieces are joined when the frame leaves: to join them here would copy a growing text for every token."""
        opened = self._open_texts.get(turn)
        if opened is None or opened[0] != _ANSWER:
            opened = self._open_text(turn, _ANSWER, self._add(turn))
        opened[1].append(text)
        self._chars += len(text)

    def _put_call(self, turn: int, delta: ToolCallDelta) -> None:
        opened = self._open_texts.get(turn)
        if opened is None or opened[0] != delta.index:
            event = self._add(turn)
            event.tool_call_delta.MergeFrom(pb.ToolCallDelta(index=delta.index, call_id=delta.id, name=delta.name))
            opened = self._open_text(turn, delta.index, event)
        opened[1].append(delta.arguments)
        self._chars += len(delta.arguments)

    def _open_text(self, turn: int, belongs_to: int, event: pb.Event) -> tuple[int, list[str]]:
        opened: tuple[int, list[str]] = (belongs_to, [])
        self._open_texts[turn] = opened
        self._texts.append((event, *opened))
        return opened

    def _seal(self) -> None:
        for event, belongs_to, pieces in self._texts:
            if belongs_to == _ANSWER:
                event.text_delta.text = "".join(pieces)
            else:
                event.tool_call_delta.arguments_json = "".join(pieces)
        self._sealed.append(self._frame)
        self._frame, self._chars = self._frame_type(), 0
        self._texts.clear()
        self._open_texts.clear()

    def _add(self, turn: int) -> pb.Event:
        self._sequences[turn] += 1
        self._chars += _EVENT_CHARS
        event: pb.Event = self._frame.events.add(turn=turn, sequence=self._sequences[turn])
        return event


def write_usage(target: pb.Usage, usage: Usage) -> None:
    """Fills a Usage message."""
    target.prompt_tokens = usage.prompt_tokens
    target.completion_tokens = usage.completion_tokens
    target.cached_tokens = usage.cached_tokens


def write_queued(target: pb.Queued, queued: Queued) -> None:
    """Fills a Queued message."""
    target.position = queued.position
    target.eta.FromMilliseconds(round(queued.eta_s * 1000))
    target.eta_low.FromMilliseconds(round(queued.low_s * 1000))
    target.eta_high.FromMilliseconds(round(queued.high_s * 1000))


def write_started(target: pb.Started, started: Started) -> None:
    """Fills a Started message."""
    target.model, target.worker = started.model, started.worker
    target.prompt_tokens, target.max_output_tokens = started.prompt_tokens, started.max_output_tokens
    target.turn_id, target.cached_tokens = started.turn_id, started.cached_tokens
    for allowance in started.allowances:
        target.allowances.add(subject=allowance.subject, name=allowance.name, limit=allowance.limit, remaining=allowance.left)


def write_degraded(target: pb.Degraded, degraded: Degraded) -> None:
    """Fills a Degraded message."""
    target.from_model, target.to_model, target.reason = degraded


def write_logprobs(target: Any, tokens: Sequence[TokenLogprob]) -> None:
    """Appends to a repeated TokenLogprob."""
    for token in tokens:
        target.add(token_id=token.token, token_bytes=token.data, logprob=token.logprob)


def seconds(value: float) -> Duration:
    """A Duration, to the millisecond."""
    duration = Duration()
    duration.FromMilliseconds(round(value * 1000))
    return duration


def _write_finished(event: pb.Event, finished: Finished) -> None:
    event.finished.finish_reason = FINISH_REASONS[finished.reason]
    event.finished.stop = finished.stop


FINISH_REASONS = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
    FinishReason.CANCELLED: pb.FINISH_REASON_CANCELLED,
    FinishReason.TOOL_CALLS: pb.FINISH_REASON_TOOL_CALLS,
    FinishReason.BUDGET: pb.FINISH_REASON_BUDGET,
}

_WRITERS: dict[type, Callable[[pb.Event, Any, str], None]] = {
    Queued: lambda event, queued, _: write_queued(event.queued, queued),
    Degraded: lambda event, degraded, _: write_degraded(event.degraded, degraded),
    Started: lambda event, started, _: write_started(event.started, started),
    Logprobs: lambda event, logprobs, _: write_logprobs(event.logprobs.tokens, logprobs.tokens),
    Usage: lambda event, usage, _: write_usage(event.usage, usage),
    Finished: lambda event, finished, _: _write_finished(event, finished),
    Failed: lambda event, failed, request_id: event.failed.status.CopyFrom(to_status(failed.error, request_id)),
}

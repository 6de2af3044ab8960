"""Lanes: one response per engine step for each attached router.

In-flight batching gives one token for every running sequence in each step, all at the same moment. Sent as one Triton response per
sequence that costs about 100 µs of CPU each; so the outputs of a step are gathered here and leave as one frame per router.

Triton buffers responses without bound for a reader that is slow. Frames are therefore numbered, the router acknowledges them, and while
`WINDOW` of them are unacknowledged no frame is sent: what the steps bring in the meantime is merged into the next one. A stalled router
costs the tokens of its own requests, whose number their `max_new_tokens` bounds, and slows nobody else.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from server.engine.base import Description, Finish, Load, Output, Timing
from server.receipts import Receipt

WINDOW = 64
WRITE_DOWN_S = 5.0
"""How long a router may take from reading that a turn has ended to having it on disk."""
_REMEMBERED = 1024
"""Cancels of requests unknown here that are kept (most came just after the end, a few before the beginning), and KV events not yet sent."""


@dataclass(slots=True)
class Frame:
    """What a lane sends at once. `counts[i]` of `output_ids` belong to `request[i]`; `log_probs` aligns with `output_ids`.

    `own` is how many of the load's requests are the lane's: what the router has sent or not yet read does not count.
    """

    sequence: int
    load: Load
    own: int = 0
    request: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    output_ids: list[int] = field(default_factory=list)
    finish: list[int] = field(default_factory=list)
    log_probs: list[float] | None = None
    detail: list[str] = field(default_factory=list)

    def add(self, request: int, output: Output) -> None:
        """Appends one request's output."""
        self._align_log_probs(output)
        self.request.append(request)
        self.counts.append(len(output.tokens))
        self.output_ids += output.tokens
        self.finish.append(int(output.finish))
        if output.finish is not Finish.RUNNING:
            self.detail.append(json.dumps({"request": request, **describe_end(output.timing, output.error)}))

    def _align_log_probs(self, output: Output) -> None:
        if output.log_probs is not None and self.log_probs is None:
            self.log_probs = [0.0] * len(self.output_ids)
        if self.log_probs is not None:
            self.log_probs += _log_probs(output)


class Lane:
    """One router's lane: its running requests and what they produced since the last frame. `router` is the router's name."""

    def __init__(self, description: Description, router: str = "") -> None:
        self.router = router
        self._greeting: Description | None = description
        self._numbers: dict[int, int] = {}
        self._made: dict[int, Receipt] = {}
        self._unread: deque[tuple[int, Receipt]] = deque()
        self._read: deque[tuple[float, Receipt]] = deque()
        self._inherited: list[Receipt] = []
        self._news: dict[int, Output] = {}
        self._kv_events: deque[Mapping[str, object]] = deque(maxlen=_REMEMBERED)
        self._cancelled_early: deque[int] = deque(maxlen=_REMEMBERED)
        self._sent = 0
        self._acknowledged = 0
        self._others = 0

    @property
    def numbers(self) -> Mapping[int, int]:
        """Running requests: the router's number to the engine's."""
        return self._numbers

    @property
    def receipts(self) -> list[Receipt]:
        """What was made for this router and, as far as is known, not written down by it."""
        return [*self._made.values(), *(it for _, it in self._unread), *(it for _, it in self._read), *self._inherited]

    def inherit(self, receipts: Sequence[Receipt]) -> None:
        """Takes receipts of an earlier lane, for the next frame."""
        self._inherited += receipts

    def open_request(self, request: int, number: int, account: str = "") -> None:
        """Books a running request."""
        self._numbers[request] = number
        self._made[request] = Receipt(account)

    def close_request(self, request: int) -> int | None:
        """Forgets a request and what it produced; returns the engine's number, or None when it does not run."""
        self._news.pop(request, None)
        self._made.pop(request, None)
        number = self._numbers.pop(request, None)
        if number is None:
            self._cancelled_early.append(request)
        return number

    def was_cancelled(self, request: int) -> bool:
        """Whether the router gave the request up before it came: traced ones come on streams of their own, which a cancel can overtake."""
        return request in self._cancelled_early

    def add(self, request: int, output: Output) -> None:
        """Takes a step's output for a request, merging it with what has not been sent."""
        if output.finish is not Finish.RUNNING:
            self._numbers.pop(request, None)
        if receipt := self._made.get(request):
            receipt.tokens += len(output.tokens)
        waiting = self._news.get(request)
        self._news[request] = output if waiting is None else _merge(waiting, output)

    def add_kv_events(self, events: Sequence[Mapping[str, object]]) -> None:
        """Takes KV cache events for the next frame. A router that is far behind misses the oldest, and sees the gap in their ids."""
        self._kv_events.extend(events)

    def acknowledge(self, sequence: int, now: float) -> None:
        """The router has read all frames up to `sequence`; a moment later it has written down the ends that they told."""
        self._acknowledged = max(self._acknowledged, sequence)
        while self._unread and self._unread[0][0] <= sequence:
            self._read.append((now, self._unread.popleft()[1]))
        while self._read and now - self._read[0][0] > WRITE_DOWN_S:
            self._read.popleft()

    def take_frame(self, load: Load, *, even_if_empty: bool = False) -> Frame | None:
        """The next frame, or None when there is nothing to say or the router is behind.

        That others have more requests here than before, or fewer, is something to say: it tells the router how many it may send.
        """
        own = len(self._numbers)
        others = max(0, load.active + load.queued - own)
        has_news = self._news or self._greeting or self._kv_events or self._inherited or others != self._others
        if not (has_news or even_if_empty) or self._sent - self._acknowledged >= WINDOW:
            return None
        self._sent += 1
        self._others = others
        frame = Frame(self._sent, load, own)
        if self._greeting:
            frame.detail.append(json.dumps({"description": asdict(self._greeting)}))
            self._greeting = None
        if self._kv_events:
            frame.detail.append(json.dumps({"kv_events": list(self._kv_events)}))
            self._kv_events.clear()
        if self._inherited:
            frame.detail.append(json.dumps({"receipts": [asdict(receipt) for receipt in self._inherited]}))
            self._unread.extend((self._sent, receipt) for receipt in self._inherited)
            self._inherited = []
        for request, output in self._news.items():
            frame.add(request, output)
            if output.finish is not Finish.RUNNING:
                self._end(request, output)
        self._news = {}
        return frame

    def _end(self, request: int, output: Output) -> None:
        receipt = self._made.pop(request, None)
        if receipt and receipt.account:
            receipt.cached_tokens = output.timing.cached_tokens if output.timing else None
            self._unread.append((self._sent, receipt))


def describe_end(timing: Timing | None, error: str | None) -> dict[str, object]:
    """The JSON detail of an ended request."""
    return ({} if timing is None else asdict(timing)) | ({} if error is None else {"error": error})


def _log_probs(output: Output) -> list[float]:
    """One for each token; zeros where the request asked for none."""
    return [0.0] * len(output.tokens) if output.log_probs is None else output.log_probs


def _merge(first: Output, second: Output) -> Output:
    """Extends `first` in place: a copy in each step would let a router that stands still slow the engine down for all."""
    if first.log_probs is not None or second.log_probs is not None:
        first.log_probs = _log_probs(first)
        first.log_probs += _log_probs(second)
    first.tokens += second.tokens
    first.finish, first.timing, first.error = second.finish, second.timing, second.error
    return first

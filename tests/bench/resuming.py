"""A caller that comes back, over either wire: the rules of resuming. What it has received is checked frame by frame."""

from __future__ import annotations

from collections import defaultdict
from itertools import cycle

from tidegate.v1.chat_service_pb2 import ConverseRequest, Resume, Setup, StartTurn
from tidegate.v1.event_pb2 import FINISH_REASON_TOOL_CALLS, Event, Ready
from tidegate.v1.turn_pb2 import TurnSpec

from router.transport.outbox import seconds
from tests.bench.wires import Dial, Wire


class ResumingCaller:
    """One stream over many connections. `events` are all that came, `texts` what each turn said, `ended` the newest terminal events,
    `calls` the turns of tool calls by their ids."""

    def __init__(self, resume_for_s: float) -> None:
        self.ready: Ready | None = None
        self.sequence = 0
        self.connections = 0
        self.events: list[Event] = []
        self.texts: defaultdict[int, str] = defaultdict(str)
        self.ended: dict[int, Event] = {}
        self.calls: dict[str, int] = {}
        self._resume_for_s = resume_for_s
        self.starts: dict[int, ConverseRequest] = {}
        self._counts: defaultdict[int, int] = defaultdict(int)
        self.wire: Wire
        """The connection in force."""

    async def connect(self, dial: Dial, headers: tuple[tuple[str, str], ...] = ()) -> None:
        """Opens the stream, or takes it up again; starts of which nothing has come are sent again."""
        self.connections += 1
        self.wire = await dial(headers)
        if self.ready is None:
            await self.send(ConverseRequest(setup=Setup(resume_for=seconds(self._resume_for_s))))
        else:
            resume = Resume(stream_id=self.ready.stream_id, after_sequence=self.sequence, attempt=self.connections)
            await self.send(ConverseRequest(setup=Setup(resume=resume)))
        for turn, start in self.starts.items():
            if not self._counts[turn]:
                await self.send(start)

    async def start(self, spec: TurnSpec) -> int:
        """Starts the next turn and gives its number."""
        turn = len(self.starts) + 1
        self.starts[turn] = ConverseRequest(start=StartTurn(turn=turn, spec=spec))
        await self.send(self.starts[turn])
        return turn

    async def send(self, request: ConverseRequest) -> None:
        """Sends a message on this connection; that it is lost is for `read` to find."""
        await self.wire.send(request)

    async def half_close(self) -> None:
        """No more input on this connection."""
        await self.wire.half_close()

    def cut(self) -> None:
        """Leaves this connection as it is."""
        self.wire.cut()

    async def read(self) -> bool:
        """Takes the next frame. False at the end of the connection; raises TidegateError when that was not a good one."""
        frame = await self.wire.receive()
        if frame is None:
            return False
        if [event.WhichOneof("event") for event in frame.events] == ["ready"] and self.ready is not None:
            assert (frame.sequence, frame.events[0].ready) == (self.sequence, self.ready)
            return True
        assert frame.sequence == self.sequence + 1
        self.sequence = frame.sequence
        for event in frame.events:
            self._take(event)
        return True

    async def read_until_ended(self, *turns: int) -> None:
        """Reads until these turns have."""
        while not set(turns) <= set(self.ended):
            assert await self.read(), "the stream ended before its turns"

    async def read_with_cuts(self, turn: int, *dials: Dial) -> None:
        """Reads until this turn has ended, and leaves the connection behind every frame for the next of these ways."""
        ways = cycle(dials)
        while turn not in self.ended:
            last = self.sequence
            while self.sequence == last:
                assert await self.read(), "the stream ended before its turn"
            if turn not in self.ended:
                self.cut()
                await self.connect(next(ways))

    def _take(self, event: Event) -> None:
        self.events.append(event)
        self._counts[event.turn] += 1
        assert event.sequence == self._counts[event.turn]
        kind = event.WhichOneof("event")
        if kind == "ready":
            self.ready = event.ready
        elif kind == "text_delta":
            self.texts[event.turn] += event.text_delta.text
        elif kind == "tool_call_delta" and event.tool_call_delta.call_id:
            self.calls[event.tool_call_delta.call_id] = event.turn
        elif kind in ("finished", "failed"):
            before = self.ended.get(event.turn)
            assert before is None or before.finished.finish_reason == FINISH_REASON_TOOL_CALLS
            self.ended[event.turn] = event

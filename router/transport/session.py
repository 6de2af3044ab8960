"""One Converse stream: the order of its messages, its running turns, and its end.

Each running turn is one task in the pipeline. A turn leaves by its terminal event, but one that has called tools may come back with their
results. When the stream goes, for any reason, its turns are cancelled and waited for, so nothing runs on in the engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tidegate.v1 import event_pb2
from tidegate.v1.chat_service_pb2 import ConverseRequest, ConverseResponse, Setup, StartTurn, ToolResults

from router.checks import check_sampling
from router.config import Limits
from router.errors import CallerError, TidegateError, describe_fault, draining, internal, protocol_violated, stream_taken, too_many_turns
from router.model import Call, Failed, Message, Sink, TurnRequest
from router.pipeline import Pipeline
from router.transport.exchange.journal import Journal, Owner
from router.transport.exchange.progress import Progress
from router.transport.frame_log import FrameLog
from router.transport.outbox import Outbox, seconds
from router.transport.requests import read_results, read_sampling, read_turn
from router.transport.turns import cancel_turn
from router.transport.waiting import WaitingTurns, turn_forgotten, turn_unknown

log = logging.getLogger("tidegate.transport")


@dataclass(slots=True)
class Retention:
    """What lets a stream be resumed: the id to ask for, who may, the seconds that it outlives a connection, and what was sent.

    `journal` is its way to other routers, where there are any, and `attempt` the newest number that its caller gave an attempt to resume.
    """

    stream_id: str
    owner: Owner
    keep_s: float
    log: FrameLog
    journal: Journal | None = None
    attempt: int = 0

    def note_attempt(self, attempt: int) -> None:
        """Its caller wants it, here or at another router; 0 is an attempt without a number. Raises CallerError STREAM_TAKEN when a newer
        attempt came before."""
        if 0 < attempt < self.attempt:
            raise stream_taken()
        self.attempt = max(attempt, self.attempt)


class Session:
    """The state of one Converse stream, whatever connection it has."""

    def __init__(self, call: Call, pipeline: Pipeline, limits: Limits) -> None:
        self.outbox: Outbox[ConverseResponse] = Outbox(ConverseResponse, call.request_id)
        self.setup: Setup | None = None
        self.ready = event_pb2.Ready()
        self.retention: Retention | None = None
        self.fault: TidegateError | None = None
        self._call = call
        self._pipeline = pipeline
        self._limits = limits
        self._turns: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = WaitingTurns(limits.max_message_bytes, self._drop)
        self._stranded: dict[int, Callable[[], CallerError]] = {}
        self._last_turn = 0
        self._sequence = 0
        self._last_input = False
        self._going_away = False
        self._resumed = False

    def restore(self, setup: Setup, ready: event_pb2.Ready, retention: Retention, progress: Progress) -> None:
        """Goes on with what another router has had of the stream, before anything else happens."""
        self.outbox = Outbox(ConverseResponse, self.request_id, progress.events)
        self.setup, self.ready, self.retention = setup, ready, retention
        self._last_turn, self._sequence = progress.last_turn, retention.log.last
        for turn in progress.waiting:
            self.strand(turn)

    @property
    def request_id(self) -> str:
        """Of the call that began the stream; its turns are logged under it, those of later connections too."""
        return self._call.request_id

    @property
    def is_over(self) -> bool:
        """Whether it has ended as its caller meant it to."""
        return self._last_input and not self._tasks

    def receive(self, request: ConverseRequest) -> None:
        """Takes one message of the caller. Raises TidegateError for a fault of the call; faults of a turn become `failed`."""
        kind = request.WhichOneof("message")
        if self.setup is None and kind != "setup":
            raise protocol_violated("SETUP_MISSING", "setup", "the first message must be `setup`")
        match kind:
            case "setup":
                self._open(request.setup)
            case "start":
                self._start(request.start)
            case "cancel":
                self.cancel(request.cancel.turn)
            case "tool_results":
                self._continue(request.tool_results)
            case "leave":
                pass  # for whoever keeps the stream
            case _:
                raise protocol_violated("MESSAGE_EMPTY", "message", "exactly one member must be set")

    def greet(self) -> None:
        """Tells the caller that the stream is set up."""
        self.outbox.put_stream_event(ready=self.ready)

    async def take(self) -> ConverseResponse | bytes | None:
        """The next frame, waiting for one; None when the stream has ended. Serialised where it is kept too."""
        frame = await self.outbox.take()
        return None if frame is None else self._number(frame)

    def number_waiting(self) -> None:
        """Numbers and keeps what waits to be sent, as if it had been."""
        while (frame := self.outbox.pop()) is not None:
            self._number(frame)

    def resume(self, call: Call, arrived: int) -> ConverseResponse:
        """A new connection takes the stream up. Gives its first frame, which is none of the stream's own and repeats the number before."""
        self._call = replace(call, request_id=self.request_id)
        self._resumed = True
        self._last_input = self._going_away
        if not self._going_away:
            self.outbox.reopen()
        return ConverseResponse(events=[event_pb2.Event(ready=self.ready)], sequence=arrived)

    def finish_input(self) -> None:
        """The caller has half-closed: the stream ends when its turns have."""
        self._last_input = True
        self._end_if_done()

    def fail(self, error: TidegateError) -> None:
        """A fault of the call: what is in the outbox is still sent, then the writer ends the call with this error."""
        self.fault = error
        self.outbox.close()

    def announce_end(self, grace_s: float) -> None:
        """The router is going: no new turns, and the stream ends when its running turns have."""
        self._going_away = True
        self.outbox.put_stream_event(go_away=event_pb2.GoAway(grace=seconds(grace_s)))
        self.finish_input()

    def cancel(self, turn: int) -> None:
        """Ends one turn as cancelled, if it runs; one that waits for tool results waits no more."""
        if turn in self._waiting:
            self._waiting.drop(turn)
            self._stranded[turn] = turn_unknown
        elif task := self._turns.get(turn):
            cancel_turn(task)

    def cancel_turns(self, error: TidegateError) -> None:
        """Ends every running turn as failed with `error`."""
        for task in self._tasks:
            cancel_turn(task, error)

    def adopt(self, turn: int, run: Coroutine[Any, Any, None]) -> None:
        """Has a turn of which another router tells."""
        self._add(turn, asyncio.create_task(run))

    def strand(self, turn: int) -> None:
        """A turn has called tools and cannot be continued here: its results fail."""
        self._stranded[turn] = turn_forgotten
        if len(self._stranded) > self._limits.max_turns_per_stream:
            del self._stranded[next(iter(self._stranded))]

    async def wait_for_turns(self) -> None:
        """Returns when none is running."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancels the turns that still run, and waits until they have left the engine."""
        self.outbox.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _open(self, setup: Setup) -> None:
        if self.setup is not None:
            raise protocol_violated("SETUP_REPEATED", "setup", "`setup` may be sent once")
        model = self._pipeline.check_model(setup.model)
        check_sampling(read_sampling(setup.sampling))
        self.setup = setup
        self.ready = event_pb2.Ready(stream_id=self.request_id, model=model)
        if self.retention is not None:  # whoever keeps it sees to it that it can be resumed, then greets
            self.ready.stream_id = self.retention.stream_id
            self.ready.resume_for.CopyFrom(seconds(self.retention.keep_s))
        else:
            self.greet()

    def _start(self, start: StartTurn) -> None:
        if start.turn <= self._last_turn:
            if self._resumed and start.turn > 0:
                return  # it had arrived before the connection was lost, which the caller could not know
            raise protocol_violated("TURN_NUMBER_INVALID", "start.turn", "must be above the number of every earlier turn, and above 0")
        self._last_turn = start.turn
        assert self.setup is not None, "checked in receive"
        self._run_or_fail(start.turn, partial(read_turn, start.spec, self.setup.model, self.setup.sampling))

    def _continue(self, answer: ToolResults) -> None:
        turn, results = answer.turn, read_results(answer.results)
        if self._is_repeated(turn, results):
            return
        if turn not in self._waiting and (turn in self._turns or not 0 < turn <= self._last_turn):
            raise turn_unknown()
        self._run_or_fail(turn, partial(self._go_on, turn, results))

    def _go_on(self, turn: int, results: Sequence[Message]) -> TurnRequest:
        if (refusal := self._stranded.pop(turn, None)) is not None:
            raise refusal()
        return self._waiting.go_on(turn, results)

    def _is_repeated(self, turn: int, results: Sequence[Message]) -> bool:
        """Whether these results had arrived before a connection was lost, which the caller could not know."""
        if not self._resumed or not 0 < turn <= self._last_turn:
            return False
        return not self._waiting.wants(turn, results) if turn in self._waiting else turn not in self._stranded

    def _run_or_fail(self, turn: int, read: Callable[[], TurnRequest]) -> None:
        if self.retention is not None and self.retention.journal is not None:
            self.retention.journal.start(turn)
        try:
            self._check_room()
            self._run(turn, read())
        except TidegateError as error:
            self.outbox.put(turn, [Failed(error)])
            self._forget(turn)

    def _check_room(self) -> None:
        if self._going_away:
            raise draining()
        if len(self._turns) >= self._limits.max_turns_per_stream:
            raise too_many_turns(self._limits.max_turns_per_stream)

    def _run(self, turn: int, request: TurnRequest) -> None:
        sink: Sink = partial(self.outbox.put, turn)
        if request.tools:
            sink = self._waiting.watch(turn, request, sink)
        self._add(turn, asyncio.create_task(self._pipeline.run(self._call, request, sink)))

    def _add(self, turn: int, task: asyncio.Task[None]) -> None:
        # The task that ran the turn before may still be at its last steps.
        self._turns[turn] = task
        self._tasks.add(task)
        task.add_done_callback(partial(self._finish, turn))

    def _finish(self, turn: int, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            log.error("turn broke the pipeline; request %s: %s", self._call.request_id, describe_fault(error))
            self.outbox.put(turn, [Failed(internal())])
        self._tasks.discard(task)
        if self._turns.get(turn) is task:
            del self._turns[turn]
            self._forget(turn)
        self._end_if_done()

    def _forget(self, turn: int) -> None:
        """A turn that waits goes on counting its events."""
        if turn not in self._waiting and turn not in self._stranded:
            self.outbox.forget(turn)

    def _drop(self, turn: int) -> None:
        """A turn waits no more, and was not answered."""
        self.strand(turn)
        self.outbox.forget(turn)
        if self.retention is not None and self.retention.journal is not None:
            self.retention.journal.forget(turn)

    def _number(self, frame: ConverseResponse) -> ConverseResponse | bytes:
        self._sequence += 1
        frame.sequence = self._sequence
        if self.retention is None:
            return frame
        data = frame.SerializeToString()
        self.retention.log.append(data)
        if self.retention.journal is not None:
            self.retention.journal.note(frame)
        return data

    def _end_if_done(self) -> None:
        if self.is_over:
            self.outbox.close()

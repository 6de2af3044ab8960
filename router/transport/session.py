"""One Converse stream: the order of its messages, its running turns, and its end.

Each running turn is one task in the pipeline. A turn leaves by its terminal event, but one that has called tools may come back with their
results. When the stream goes, for any reason, its turns are cancelled and waited for, so nothing runs on in the engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from tidegate.v1 import event_pb2
from tidegate.v1.chat_service_pb2 import ConverseRequest, ConverseResponse, Setup, StartTurn, ToolResults

from router.checks import check_sampling
from router.config import Limits
from router.errors import TidegateError, describe_fault, draining, internal, protocol_violated, too_many_turns
from router.model import Call, Failed, Sink, TurnRequest
from router.pipeline import Pipeline
from router.transport.outbox import Outbox, seconds
from router.transport.requests import read_results, read_sampling, read_turn
from router.transport.waiting import WaitingTurns, turn_unknown

log = logging.getLogger("tidegate.transport")


class Session:
    """The state of one Converse stream."""

    def __init__(self, call: Call, pipeline: Pipeline, limits: Limits) -> None:
        self.outbox: Outbox[ConverseResponse] = Outbox(ConverseResponse, call.request_id)
        self._call = call
        self._pipeline = pipeline
        self._limits = limits
        self._setup: Setup | None = None
        self._turns: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = WaitingTurns(limits.max_message_bytes, self.outbox.forget)
        self._last_turn = 0
        self._last_input = False
        self._going_away = False
        self.fault: TidegateError | None = None

    def receive(self, request: ConverseRequest) -> None:
        """Takes one message of the caller. Raises TidegateError for a fault of the call; faults of a turn become `failed`."""
        kind = request.WhichOneof("message")
        if self._setup is None and kind != "setup":
            raise protocol_violated("SETUP_MISSING", "setup", "the first message must be `setup`")
        match kind:
            case "setup":
                self._open(request.setup)
            case "start":
                self._start(request.start)
            case "cancel":
                self._cancel(request.cancel.turn)
            case "tool_results":
                self._continue(request.tool_results)
            case _:
                raise protocol_violated("MESSAGE_EMPTY", "message", "exactly one member must be set")

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

    def cancel_turns(self, error: TidegateError) -> None:
        """Ends every running turn as failed with `error`."""
        for task in self._tasks:
            cancel_turn(task, error)

    async def close(self) -> None:
        """Cancels the turns that still run, and waits until they have left the engine."""
        self.outbox.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _open(self, setup: Setup) -> None:
        if self._setup is not None:
            raise protocol_violated("SETUP_REPEATED", "setup", "`setup` may be sent once")
        model = self._pipeline.check_model(setup.model)
        check_sampling(read_sampling(setup.sampling))
        self._setup = setup
        self.outbox.put_stream_event(ready=event_pb2.Ready(stream_id=self._call.request_id, model=model))

    def _start(self, start: StartTurn) -> None:
        if start.turn <= self._last_turn:
            raise protocol_violated("TURN_NUMBER_INVALID", "start.turn", "must be above the number of every earlier turn, and above 0")
        self._last_turn = start.turn
        assert self._setup is not None, "checked in receive"
        self._run_or_fail(start.turn, partial(read_turn, start.spec, self._setup.model, self._setup.sampling))

    def _continue(self, answer: ToolResults) -> None:
        turn = answer.turn
        if turn not in self._waiting and (turn in self._turns or not 0 < turn <= self._last_turn):
            raise turn_unknown()
        self._run_or_fail(turn, partial(self._waiting.go_on, turn, read_results(answer.results)))

    def _run_or_fail(self, turn: int, read: Callable[[], TurnRequest]) -> None:
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
        task = asyncio.create_task(self._pipeline.run(self._call, request, sink))
        # The task that ran the turn before may still be at its last steps.
        self._turns[turn] = task
        self._tasks.add(task)
        task.add_done_callback(partial(self._finish, turn))

    def _cancel(self, turn: int) -> None:
        if turn in self._waiting:
            self._waiting.drop(turn)
        elif task := self._turns.get(turn):
            cancel_turn(task)

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
        if turn not in self._waiting:
            self.outbox.forget(turn)

    def _end_if_done(self) -> None:
        if self._last_input and not self._tasks:
            self.outbox.close()


def cancel_turn(task: asyncio.Task[None], *reason: TidegateError) -> None:
    """Cancels a turn behind its task's first step: a task that is cancelled before never runs, and the turn would have no end."""
    asyncio.get_running_loop().call_soon(partial(task.cancel, *reason))

"""One Converse stream: the order of its messages, its running turns, and its end.

Each running turn is one task in the pipeline. A turn leaves by its terminal event; when the stream goes, for any reason, its turns are
cancelled and waited for, so nothing runs on in the engine.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from tidegate.v1 import event_pb2
from tidegate.v1.chat_service_pb2 import ConverseRequest, ConverseResponse, Setup, StartTurn

from router.checks import check_sampling
from router.config import Limits
from router.errors import TidegateError, describe_fault, draining, internal, protocol_violated, too_many_turns
from router.model import Call, Failed
from router.pipeline import Pipeline
from router.transport.outbox import Outbox, seconds
from router.transport.requests import read_sampling, read_turn

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
                raise protocol_violated("TURN_UNKNOWN", "tool_results.turn", "no turn with this number waits for tool results")
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
        for task in self._turns.values():
            cancel_turn(task, error)

    async def close(self) -> None:
        """Cancels the turns that still run, and waits until they have left the engine."""
        self.outbox.close()
        tasks = list(self._turns.values())
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
        refusal = self._refusal()
        if refusal is None:
            self._run(start)
        else:
            self.outbox.put(start.turn, [Failed(refusal)])
            self.outbox.forget(start.turn)

    def _refusal(self) -> TidegateError | None:
        if self._going_away:
            return draining()
        most = self._limits.max_turns_per_stream
        return too_many_turns(most) if len(self._turns) >= most else None

    def _run(self, start: StartTurn) -> None:
        assert self._setup is not None, "checked in receive"
        request = read_turn(start.spec, self._setup.model, self._setup.sampling)
        sink = partial(self.outbox.put, start.turn)
        task = asyncio.create_task(self._pipeline.run(self._call, request, sink))
        self._turns[start.turn] = task
        task.add_done_callback(partial(self._forget, start.turn))

    def _cancel(self, turn: int) -> None:
        task = self._turns.get(turn)
        if task is not None:
            cancel_turn(task)

    def _forget(self, turn: int, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            log.error("turn broke the pipeline; request %s: %s", self._call.request_id, describe_fault(error))
            self.outbox.put(turn, [Failed(internal())])
        del self._turns[turn]
        self.outbox.forget(turn)
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._last_input and not self._turns:
            self.outbox.close()


def cancel_turn(task: asyncio.Task[None], *reason: TidegateError) -> None:
    """Cancels a turn behind its task's first step: a task that is cancelled before never runs, and the turn would have no end."""
    asyncio.get_running_loop().call_soon(partial(task.cancel, *reason))

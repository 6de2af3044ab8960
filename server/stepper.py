"""The loop that drives an engine for the Triton model. Knows nothing of Triton.

One thread owns the engine and everything in this file; Triton's threads only put commands into the inbox. Each turn of the loop

    takes the commands → steps the engine once → hands each output to its lane or its caller → sends every lane one frame

so cancelled requests leave at the next step, and a lane costs one message a step whatever its number of requests. While nothing runs the
loop sleeps in the inbox and wakes every `HEARTBEAT_S` to send each lane a frame with the load: a router tells a live worker from a hung
one by that, since a step that hangs stops the heartbeats too.

When the engine breaks, its requests fail with a reason, the engine is built anew and the loop goes on. When building fails too, lanes and
callers get an error from then on.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from server.engine.base import Engine, EngineBroken, Finish, Load, Output, Request, RequestRefused
from server.lanes import Lane
from server.receipts import Receipts
from server.replies import LaneReply, Reply

HEARTBEAT_S = 1.0
POLL_S = 0.005
"""How often callers are asked whether they left: a round trip to Triton of about 70 µs each, too much for every step of a fast engine."""

log = logging.getLogger("tidegate.stepper")


@dataclass(frozen=True, slots=True)
class Address:
    """A request on a lane: the lane's id, the router's number for the request, and its own text about it, for a receipt."""

    lane: str
    request: int
    account: str = ""


@dataclass(frozen=True, slots=True)
class _Running:
    """A request in the engine; without an address its tokens go to its own caller."""

    reply: Reply
    address: Address | None


class Stepper:
    """Drives one engine. `run()` is the thread; the commands may be called from any thread."""

    def __init__(self, build_engine: Callable[[], Engine], observe: Callable[[Load], None] = lambda load: None) -> None:
        """`build_engine` makes the engine, and another when it breaks. `observe` gets the load with every heartbeat, for metrics."""
        self._build_engine = build_engine
        self._observe = observe
        self._engine = build_engine()
        self._load = self._engine.load()
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lanes: dict[str, tuple[Lane, LaneReply]] = {}
        self._running: dict[int, _Running] = {}
        self._receipts = Receipts()
        self._last_number = 0
        self._last_poll = 0.0
        self._last_beat = 0.0
        self._down: str | None = None
        self._stopped = False

    # Commands, from any thread.

    def attach(self, lane: str, reply: LaneReply, router: str = "") -> None:
        """Makes a stream a lane of the router with that name."""
        self._put(lambda: self._attach(lane, reply, router), reply.end)

    def generate(self, request: Request, reply: Reply, address: Address | None) -> None:
        """Starts a generation. `request.number` is replaced by one that is unique for the engine's life."""
        self._put(lambda: self._generate(request, reply, address), reply.refuse)

    def cancel(self, lane: str, requests: Sequence[int]) -> None:
        """Ends requests of a lane without another output."""
        self._put(lambda: self._cancel(lane, requests))

    def acknowledge(self, lane: str, sequence: int) -> None:
        """Tells that a router has read its lane's frames up to `sequence`."""
        self._put(lambda: self._acknowledge(lane, sequence))

    def stop(self) -> None:
        """Ends the loop after the current step; what runs fails."""
        self._inbox.put(self._stop)

    def _put(self, command: Callable[[], None], refuse: Callable[[str], None] = lambda message: None) -> None:
        """A command that fails is refused, and hurts no other: what is in it comes from the network."""

        def run() -> None:
            try:
                command()
            except Exception:
                log.exception("a command failed")
                refuse("lane: the worker failed on this request")

        self._inbox.put(run)

    # The loop.

    def run(self) -> None:
        """Runs until stopped. What it raises is a fault of the loop itself, after which nothing is served: the process must end."""
        while not self._stopped:
            self._take_commands()
            self._step()
            self._drop_leavers()
            self._send_frames()
        self._end_all("the worker is stopping")
        if not self._down:
            self._engine.close()

    def _take_commands(self) -> None:
        try:
            self._inbox.get(timeout=self._patience())()
            while True:
                self._inbox.get_nowait()()
        except queue.Empty:
            pass

    def _patience(self) -> float:
        return 0.0 if self._has_work() else HEARTBEAT_S

    def _has_work(self) -> bool:
        return not self._down and self._engine.has_work()

    def _step(self) -> None:
        if not self._has_work():
            return
        try:
            outputs = self._engine.step()
        except Exception as error:
            self._rebuild(error)
        else:
            for output in outputs:
                self._deliver(output)

    def _deliver(self, output: Output) -> None:
        running = self._running[output.number]
        if running.address:
            self._lanes[running.address.lane][0].add(running.address.request, output)
        else:
            running.reply.send_output(output)
        if output.finish is not Finish.RUNNING:
            del self._running[output.number]
            running.reply.end(output)

    def _drop_leavers(self) -> None:
        """Cancels what belongs to lanes and callers that are gone."""
        now = time.monotonic()
        if now - self._last_poll < POLL_S:
            return
        self._last_poll = now
        for lane in [name for name, (_, reply) in self._lanes.items() if reply.is_cancelled()]:
            self._detach(lane)
        for number, running in list(self._running.items()):
            if running.address is None and running.reply.is_cancelled():
                self._end_request(number)

    def _send_frames(self) -> None:
        beat = self._is_beat()
        if self._down or not (beat or self._lanes):
            return
        self._load = self._engine.load()
        if beat:
            self._observe(self._load)
            self._hand_over_receipts()
        events = self._engine.take_kv_events()
        for lane, _ in self._lanes.values():
            lane.add_kv_events(events)
        self._flush_lanes(even_if_empty=beat)

    def _hand_over_receipts(self) -> None:
        for lane, _ in self._lanes.values():
            if lane.router:
                lane.inherit(self._receipts.take(lane.router, time.monotonic()))

    def _flush_lanes(self, *, even_if_empty: bool = False) -> None:
        for name, (lane, reply) in list(self._lanes.items()):
            try:
                if frame := lane.take_frame(self._load, even_if_empty=even_if_empty):
                    reply.send_frame(frame)
            except Exception:
                log.exception("a frame cannot be sent; its lane ends")
                self._detach(name)

    def _is_beat(self) -> bool:
        now = time.monotonic()
        if now - self._last_beat < HEARTBEAT_S:
            return False
        self._last_beat = now
        return True

    # What commands do, in the loop's thread.

    def _attach(self, name: str, reply: LaneReply, router: str) -> None:
        if self._down or name in self._lanes:
            reply.end(self._down or "this lane is attached already")
        else:
            self._lanes[name] = (Lane(self._engine.description, router), reply)
            self._hand_over_receipts()

    def _generate(self, request: Request, reply: Reply, address: Address | None) -> None:
        if address and address.lane in self._lanes and self._lanes[address.lane][0].was_cancelled(address.request):
            reply.end(Output(0, [], Finish.CANCELLED))
            return
        if self._down:
            reply.refuse(self._down)
            return
        try:
            self._submit(replace(request, number=self._last_number + 1), reply, address)
        except RequestRefused as refusal:
            self._turn_away(Output(0, [], Finish.REFUSED, error=str(refusal)), reply, address)
        except Exception as error:  # nothing is wrong with the request: its router may try another worker
            self._turn_away(Output(0, [], Finish.FAILED, error="the engine failed as it took the request"), reply, address)
            self._rebuild(error)

    def _submit(self, request: Request, reply: Reply, address: Address | None) -> None:
        if address and address.lane not in self._lanes:
            raise RequestRefused("lane: not attached")
        if address and address.request in self._lanes[address.lane][0].numbers:
            raise RequestRefused("request: this number runs on the lane already")
        self._engine.submit(request)
        self._last_number = request.number
        self._running[request.number] = _Running(reply, address)
        if address:
            self._lanes[address.lane][0].open_request(address.request, request.number, address.account)

    def _turn_away(self, end: Output, reply: Reply, address: Address | None) -> None:
        """Tells it on the lane, where the router listens; on the request's own response when the lane has no place for it."""
        lane = self._lanes[address.lane][0] if address and address.lane in self._lanes else None
        if address is None or lane is None or address.request in lane.numbers:
            reply.refuse(str(end.error))
            return
        lane.add(address.request, end)
        reply.end(end)

    def _cancel(self, name: str, requests: Sequence[int]) -> None:
        if name not in self._lanes:
            return
        lane, _ = self._lanes[name]
        for number in filter(None, map(lane.close_request, requests)):
            self._end_request(number)

    def _acknowledge(self, name: str, sequence: int) -> None:
        if name in self._lanes:
            self._lanes[name][0].acknowledge(sequence, time.monotonic())

    def _stop(self) -> None:
        self._stopped = True

    # Endings.

    def _detach(self, name: str) -> None:
        lane, reply = self._lanes.pop(name)
        self._receipts.put(lane.router, lane.receipts, time.monotonic())
        for number in lane.numbers.values():
            self._end_request(number)
        reply.end(None)

    def _end_request(self, number: int) -> None:
        self._engine.cancel(number)
        self._running.pop(number).reply.end(Output(number, [], Finish.CANCELLED))

    def _rebuild(self, error: Exception) -> None:
        """Fails what runs, at once, and builds the engine anew. Lanes are silent meanwhile, and a router may give them up: rightly so.

        An error that is not EngineBroken is a bug of the adapter: the engine's state is unknown, and this thread must live.
        """
        log.error("%s; building the engine anew", error, exc_info=None if isinstance(error, EngineBroken) else error)
        self._fail_requests("the engine failed and was built anew")
        self._flush_lanes()
        self._engine.close()
        try:
            self._engine = self._build_engine()
        except Exception:
            log.exception("the engine cannot be built")
            self._down = "the engine is down"
            self._end_all(self._down)

    def _fail_requests(self, message: str) -> None:
        for number in list(self._running):
            self._deliver(Output(number, [], Finish.FAILED, error=message))

    def _end_all(self, message: str) -> None:
        """Closes every lane with an error: its router then fails what ran there."""
        for _, reply in self._lanes.values():
            reply.end(message)
        self._lanes.clear()
        for number, running in self._running.items():
            running.reply.end(Output(number, [], Finish.FAILED, error=message))
        self._running.clear()

"""A worker without a connection: it keeps what it was asked, and the test plays its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from router.errors import TidegateError, no_worker
from router.model import GenerationRequest, WorkerDelta, WorkerDescription, WorkerFinish, WorkerLoad
from router.routing.fleet import Fleet
from router.upstream.link import Generation, OnTokens, Owner
from router.upstream.worker import Worker
from tests.bench.pools import make_pool

CONTEXT = 2048
POOL = 1024


class FakeWorker:
    """`asked` holds the requests, `cancelled` the numbers of generations that were closed while they ran."""

    def __init__(self, address: str = "127.0.0.1:1", *, up: bool = True, busy: int = 0) -> None:
        self.address = address
        self.up = up
        self.description = WorkerDescription("test", "scripted", "fast", CONTEXT, 266, 8, POOL)
        self.load = WorkerLoad()
        self.silence_s = 0.0
        self.slots = 8
        self.owner = Owner("test", lambda: None)
        self.asked: list[GenerationRequest] = []
        self.cancelled: list[int] = []
        self._busy = busy
        self._running: dict[int, Generation] = {}

    def as_worker(self) -> Worker:
        """Itself, for constructors that want a worker."""
        return cast(Worker, self)

    def connect(self, address: str, owner: Owner) -> Worker:
        """Itself, at the address where a fleet expects it."""
        self.address, self.owner = address, owner
        return self.as_worker()

    @property
    def running(self) -> int:
        return self._busy + len(self._running)

    @property
    def running_numbers(self) -> list[int]:
        """The generations that run, oldest first."""
        return list(self._running)

    def submit(self, request: GenerationRequest, on_tokens: OnTokens) -> Generation:
        if not self.up:
            raise no_worker()
        self.asked.append(request)
        generation = Generation(len(self.asked), on_tokens, self._close)
        self._running[generation.number] = generation
        return generation

    def feed(
        self,
        tokens: Sequence[int],
        finish: WorkerFinish = WorkerFinish.RUNNING,
        cached_tokens: int | None = None,
        number: int = 1,
    ) -> None:
        """One frame's entry for a generation, as the worker's link gives it."""
        generation = self._running[number]
        if finish is not WorkerFinish.RUNNING:
            del self._running[number]
        generation.on_tokens(WorkerDelta(tokens, finish, cached_tokens=cached_tokens))
        if finish is not WorkerFinish.RUNNING:
            generation.end(None)

    def break_down(self, error: TidegateError, number: int = 1) -> None:
        """The generation cannot go on."""
        self._running.pop(number).end(error)

    def _close(self, generation: Generation) -> None:
        if self._running.pop(generation.number, None):
            self.cancelled.append(generation.number)


def fleet_of(*workers: FakeWorker) -> Fleet:
    """A fleet of these workers."""
    by_address = {worker.address: worker for worker in workers}
    fleet = make_pool(lambda address, owner: by_address[address].connect(address, owner), list(by_address)).fleet
    fleet.update(by_address)
    for worker in workers:
        worker.owner.on_state()
    return fleet

"""A turn on a worker, from the moment it was chosen to the turn's end there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from router.model import WorkerDelta
from router.routing.book import Booking
from router.routing.breaker import Attempt, Outcome
from router.routing.chain import Chain
from router.routing.policy import Request
from router.routing.quarantine import digest
from router.upstream.worker import Worker


class Need(NamedTuple):
    """What a turn wants of a worker: whose it is, its prompt, and how long its answer will probably be."""

    tenant: str
    chain: Chain
    output_tokens: int

    @property
    def request(self) -> Request:
        """As policies see it."""
        return Request(len(self.chain), self.output_tokens, self.chain.key)

    @property
    def digest(self) -> bytes:
        """Names the request in quarantine."""
        return digest(self.tenant, self.chain.tokens)


class Ending(NamedTuple):
    """How a turn ended on a worker: what that says of the worker, the tokens that the turn had then, and the worker's last words."""

    outcome: Outcome
    output: Sequence[int] = ()
    last: WorkerDelta | None = None


class Route:
    """A turn's place on a worker. End it in `finally`."""

    __slots__ = ("_attempt", "_booking", "_has_ended", "_on_end", "has_tokens", "need", "worker")

    def __init__(
        self, worker: Worker, need: Need, booking: Booking, attempt: Attempt, on_end: Callable[[Route, Attempt, Ending], None]
    ) -> None:
        self.worker = worker
        self.need = need
        self.has_tokens = False
        """Whether the worker has brought any; asked in every step."""
        self._booking = booking
        self._attempt = attempt
        self._on_end = on_end
        self._has_ended = False

    @property
    def cached_tokens(self) -> int:
        """How much of the prompt the worker is expected to have cached."""
        return self._booking.offer.cached_tokens

    def take_first(self) -> None:
        """The first tokens came: the prompt waits no more, and the worker does its work."""
        self.has_tokens = True
        self._booking.end_prefill()
        self._attempt.answer()

    def end(self, ending: Ending) -> None:
        """The turn leaves the worker. Only the first call counts."""
        if not self._has_ended:
            self._has_ended = True
            self._booking.close()
            self._on_end(self, self._attempt, ending)

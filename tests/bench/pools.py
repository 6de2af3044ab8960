"""A pool made by hand, for tests that put parts of their own into it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from router.admission.estimate import TimeModel
from router.admission.queue import AdmissionQueue
from router.degradation.ladder import Ladder
from router.pool import Pool
from router.routing.book import MemoryBook
from router.routing.discovery import Static
from router.routing.fleet import Connect, Fleet
from router.routing.keeper import Keeper
from router.routing.policy import KvAware
from router.upstream.link import Owner


def make_pool(connect: Connect, addresses: Sequence[str], slots: Callable[[], int] | None = None, *, slo_s: float | None = None) -> Pool:
    """Workers at these addresses; the queue has their slots, or as many as the test says."""
    times, book = TimeModel(), MemoryBook()
    fleet = Fleet(
        connect,
        Owner("test", lambda: None),
        book=book,
        times=times,
        policy=KvAware(),
        clock=time.monotonic,
        slow_start_s=0.0,
    )
    queue = AdmissionQueue(slots or fleet.count_slots, time.monotonic, times)
    return Pool(fleet, queue, Ladder(slo_s), Keeper(fleet, Static(addresses), 1.0, lambda worker: None, lambda worker: None), book)

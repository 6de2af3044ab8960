"""The workers of one model: who is there, what they have cached and how they do, and which of them takes a turn.

Everything that decides is pure and lies beside this file; here the parts hear of what happens. A worker comes and goes by `update`; its
connection tells when it is up, its frames bring load and KV events, and each turn's route tells how the turn did there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

from router.admission.estimate import TimeModel
from router.errors import no_worker, request_quarantined
from router.model import WorkerDelta
from router.routing.book import Book
from router.routing.breaker import Attempt, Breakers, Outcome
from router.routing.chain import Chain
from router.routing.pace import Paces
from router.routing.policy import Policy, State, WorkerState, read_rates
from router.routing.prefix import PrefixIndex
from router.routing.quarantine import Quarantine, Suspect
from router.routing.retries import RetryBudget
from router.routing.route import Ending, Need, Route
from router.routing.table import WorkerTable
from router.routing.view import WorkerView, view_worker
from router.upstream.link import Owner
from router.upstream.worker import Worker

SILENT_S = 2.0
"""A worker that sends a frame each second, and has sent none for this long, gets no new turns while there are others."""

Connect = Callable[[str, Owner], Worker]


class Fleet:
    """One model's workers. Called from one event loop; `clock` is monotonic, in seconds."""

    def __init__(
        self,
        connect: Connect,
        owner: Owner,
        *,
        book: Book,
        times: TimeModel,
        policy: Policy,
        clock: Callable[[], float],
        slow_start_s: float,
    ) -> None:
        """`owner` is whom the workers' links belong to; it hears of drains, too. `connect` makes a worker for an address."""
        self._connect = connect
        self._owner = owner
        self._book = book
        self._times = times
        self._policy = policy
        self._clock = clock
        self._workers: dict[str, Worker] = {}
        self._up: set[str] = set()
        self._routes: defaultdict[str, set[Route]] = defaultdict(set)
        self._table = WorkerTable(slow_start_s=slow_start_s)
        self._index = PrefixIndex()
        self._breakers = Breakers()
        self._paces = Paces()
        self._quarantine = Quarantine()
        self._budget = RetryBudget()

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers.values())

    # Who is there.

    def update(self, addresses: Collection[str]) -> list[Worker]:
        """These are all workers there are now; gives those that are new, for somebody to run them."""
        joined = [self._join(address) for address in self._table.update(addresses, self._clock()).joined]
        self._tell_state()
        return joined

    def remove_gone(self, grace_s: float) -> list[Worker]:
        """Forgets workers that have left and run no turns, or have had `grace_s` for them; gives them, for somebody to end them."""
        gone = self._table.remove_gone(lambda address: self._workers[address].running, self._clock(), grace_s)
        return [self._forget(address) for address in gone]

    def set_drained(self, addresses: Collection[str]) -> None:
        """Workers at these addresses get no new turns, those that are there and those that will come; all others do."""
        self._table.set_drained(addresses)
        self._tell_state()

    def view(self) -> list[WorkerView]:
        """The workers as they are now, for operators, by address."""
        ejected = self._breakers.list_open()
        return [
            view_worker(
                worker,
                self._table.find_phase(address),
                ejected=address in ejected,
                pace=self._paces.read(address),
                prefix_error=self._index.read_error(address),
            )
            for address, worker in sorted(self._workers.items())
        ]

    @property
    def is_served(self) -> bool:
        """Whether any worker takes turns."""
        return bool(self._table.list_serving())

    def count_slots(self) -> int:
        """How many turns of this router may run at once: those that its serving workers take, and those that others still run.

        May be called from any thread, so it looks at copies.
        """
        serving = self._table.list_serving()
        return sum(worker.slots if address in serving else worker.running for address, worker in tuple(self._workers.items()))

    def measure_room(self) -> int:
        """Tokens that prompt and answer may have together on any worker: the context it was built for, and what its KV cache holds.

        Raises WorkerError NO_WORKER.
        """
        descriptions = [self._workers[address].description for address in self._find_serving()]
        return min(min(it.context_tokens, it.pool_tokens) for it in descriptions if it)

    # Which takes a turn.

    def expect_cached(self, chain: Chain) -> int:
        """How many of a prompt's tokens the best worker has cached."""
        return max(self._index.match(chain).values(), default=0)

    def admit(self, need: Need) -> None:
        """A turn begins. Raises CallerError REQUEST_QUARANTINED for one that has brought down workers."""
        self._budget.count_request(self._clock())
        if self._is_held(need):
            raise request_quarantined()

    async def place(self, need: Need, tried: Collection[str] = ()) -> Route:
        """Chooses a worker and books the turn there. Raises WorkerError NO_WORKER when there is none but those it has tried."""
        candidates = self._list_candidates(tried)
        if not candidates:
            raise no_worker()
        state = State(self._describe(candidates, need.chain), read_rates(self._times))
        booking = await self._book.place(self._policy.price(state, need.request))
        address = booking.offer.worker
        self._index.insert(address, need.chain)
        route = Route(self._workers[address], need, booking, self._breakers.begin(address), self._end)
        self._routes[address].add(route)
        return route

    def may_retry(self, need: Need) -> bool:
        """Whether a turn whose worker was lost may be tried on another; if so, it is counted."""
        return not self._is_held(need) and self._budget.take(self._clock())

    def _is_held(self, need: Need) -> bool:
        return len(self._quarantine) > 0 and self._quarantine.holds(need.digest, self._clock())

    def _find_serving(self) -> Sequence[str]:
        serving = self._table.list_serving()
        if not serving:
            raise no_worker()
        return serving

    def _list_candidates(self, tried: Collection[str]) -> Sequence[str]:
        # Of those that are left: an ejected worker is better than none.
        serving = [address for address in self._table.list_serving() if address not in tried]
        usable = self._breakers.list_usable(serving, self._clock())
        lively = [address for address in usable if self._workers[address].silence_s <= SILENT_S]
        return lively or usable

    def _describe(self, addresses: Sequence[str], chain: Chain) -> list[WorkerState]:
        now, cached = self._clock(), self._index.match(chain)
        weights = self._table.weigh(addresses, now)
        return [
            _describe(worker, cached.get(worker.address, 0), weights[worker.address] * self._breakers.weigh(worker.address, now), pace)
            for worker, pace in ((self._workers[address], self._paces.read(address)) for address in addresses)
        ]

    # What happens to them.

    def _join(self, address: str) -> Worker:
        events = partial(self._index.take_events, address)
        worker = self._connect(address, replace(self._owner, on_state=partial(self._take_state, address), on_kv_events=events))
        self._workers[address] = worker
        return worker

    def _forget(self, address: str) -> Worker:
        self._index.leave(address)
        self._breakers.leave(address)
        self._paces.forget(address)
        self._up.discard(address)
        self._routes.pop(address, None)
        return self._workers.pop(address)

    def _take_state(self, address: str) -> None:
        worker = self._workers.get(address)
        if worker is not None and worker.up != (address in self._up):
            self._table.note(address, self._clock(), up=worker.up)
            if worker.up:
                self._take_up(address, worker)
            else:
                self._take_down(address)
        self._tell_state()

    def _tell_state(self) -> None:
        """Which workers take turns has changed, and with it how many turns they take."""
        self._owner.on_state()
        self._owner.on_freed()

    def _take_up(self, address: str, worker: Worker) -> None:
        assert worker.description is not None, "a worker that is up has described itself"
        self._up.add(address)
        block = worker.description.block_tokens
        self._index.join(address, block, worker.description.pool_tokens // block)

    def _take_down(self, address: str) -> None:
        self._up.discard(address)
        self._index.leave(address)
        self._quarantine.suspect([Suspect(it.need.digest, it.has_tokens) for it in self._routes[address]], self._clock())

    def _end(self, route: Route, attempt: Attempt, ending: Ending) -> None:
        address = route.worker.address
        self._routes[address].discard(route)
        attempt.end(ending.outcome, self._clock())
        if ending.last is not None:
            self._learn(route, ending.last, len(ending.output))
        if ending.outcome is Outcome.ANSWERED and ending.output:
            self._index.insert(address, route.need.chain.grow(ending.output[:-1]))  # the last token was not computed on
            if len(self._quarantine):
                self._quarantine.clear(route.need.digest)

    def _learn(self, route: Route, last: WorkerDelta, output_tokens: int) -> None:
        address, prompt_tokens = route.worker.address, len(route.need.chain)
        if last.cached_tokens is not None:
            self._index.observe(address, route.cached_tokens, last.cached_tokens)
        new_tokens = prompt_tokens - (route.cached_tokens if last.cached_tokens is None else last.cached_tokens)
        expected_s = self._times.prefill(new_tokens, prompt_tokens).mid + self._times.step_s * max(0, output_tokens - 1)
        self._paces.observe(address, last.prefill_s + last.decode_s, expected_s)


def _describe(worker: Worker, cached_tokens: int, weight: float, pace: float) -> WorkerState:
    description, load = worker.description, worker.load
    assert description is not None, "a worker that serves has described itself"
    return WorkerState(
        worker.address,
        description.max_sequences,
        load.active + load.queued,
        load.total_blocks - load.free_blocks,
        load.total_blocks,
        description.block_tokens,
        cached_tokens,
        weight,
        pace,
    )

"""The queue on an event loop: who waits is told, who leaves is gone, and slots are given on at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.admission.entry import Entry, QueueLimits
from router.admission.estimate import TimeModel
from router.admission.queue import TICK_S, AdmissionQueue, TenantView
from router.errors import TidegateError

ENTRY = Entry("a", 10, 10)
Task = asyncio.Task[None]


class Pool:
    """A queue before `slots` slots, and the turns that reached a worker, by name."""

    def __init__(self, slots: int = 1, limits: QueueLimits = QueueLimits()) -> None:  # noqa: B008 - frozen
        self.slots = slots
        self.queue = AdmissionQueue(lambda: self.slots, time.monotonic, TimeModel(), limits)
        self.calls: list[str] = []
        self.told: dict[str, list[int]] = {}
        self.news = asyncio.Event()

    async def run(self, name: str, until: asyncio.Event, entry: Entry = ENTRY) -> None:
        async with self.queue.place(entry, self.listen(name)):
            self.calls.append(name)
            await until.wait()

    def listen(self, name: str) -> Callable[[int, float, float, float], None]:
        def on_queued(position: int, eta_s: float, low_s: float, high_s: float) -> None:
            assert 0 <= low_s <= eta_s <= high_s
            self.told.setdefault(name, []).append(position)
            self.news.set()

        return on_queued

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits until the turns were told what makes this true."""
        while not is_so():
            await self.news.wait()
            self.news.clear()

    async def start(self, name: str, until: asyncio.Event, entry: Entry = ENTRY) -> asyncio.Task[None]:
        """Starts a turn and lets it come to rest."""
        task = asyncio.create_task(self.run(name, until, entry))
        await settle()
        return task


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_without_a_queue_nobody_is_told_anything() -> None:
    """A free slot is taken without `on_queued`."""
    pool, done = Pool(), asyncio.Event()
    task = await pool.start("a", done)
    assert (pool.calls, pool.told) == (["a"], {})
    done.set()
    await task
    assert pool.queue.running == 0


async def test_a_turn_that_waits_is_told_at_once() -> None:
    """The first word comes before the loop turns again."""
    pool, done = Pool(), asyncio.Event()
    tasks = [await pool.start(name, done) for name in "abc"]
    assert pool.told == {"b": [0], "c": [1]}
    done.set()
    await asyncio.gather(*tasks)
    assert pool.calls == ["a", "b", "c"]


async def test_waiting_turns_are_told_again_and_again() -> None:
    """Each hears of its place at least twice a second, and of its new place when it has moved up."""
    assert TICK_S < 0.5
    pool, first, rest = Pool(), asyncio.Event(), asyncio.Event()
    tasks = [await pool.start("a", first)] + [await pool.start(name, rest) for name in "bc"]
    await pool.until(lambda: pool.told == {"b": [0, 0], "c": [1, 1]})
    first.set()
    await pool.until(lambda: pool.told["c"][-1] == 0)
    assert pool.told["b"] == [0, 0]
    rest.set()
    await asyncio.gather(*tasks)


async def test_a_queued_turn_whose_caller_left_never_runs() -> None:
    """One slot; A runs, B waits, B leaves, A ends: there was one call, and no trace of B is left."""
    pool, done = Pool(), asyncio.Event()
    a, b = await pool.start("a", done), await pool.start("b", done)
    await end(b)
    assert pool.queue.waiting == 0
    done.set()
    await a
    await settle()
    assert pool.calls == ["a"]
    assert (pool.queue.running, pool.queue.view_tenants()) == (0, [])


def cancel_waiting_first(a: Task, b: Task) -> None:
    b.cancel()
    a.cancel()


def cancel_running_first(a: Task, b: Task) -> None:
    a.cancel()
    b.cancel()


def cancel_after_the_grant(a: Task, b: Task) -> None:
    a.cancel()
    asyncio.get_running_loop().call_soon(b.cancel)


@pytest.mark.parametrize("cancel_both", [cancel_waiting_first, cancel_running_first, cancel_after_the_grant])
async def test_a_slot_given_to_a_turn_that_leaves_in_that_moment_goes_on(cancel_both: Callable[[Task, Task], None]) -> None:
    """B is cancelled in the same loop turn in which A's end would let it through: C runs, whichever comes first, and B never does."""
    pool, done = Pool(), asyncio.Event()
    a, b, c = [await pool.start(name, done) for name in "abc"]
    cancel_both(a, b)
    await settle()
    assert (pool.calls, pool.queue.running, pool.queue.waiting) == (["a", "c"], 1, 0)
    done.set()
    await c
    assert b.cancelled()


async def play(deeds: list[tuple[str, int]]) -> None:
    """Starts, ends and cancels turns in the given order, several in one loop turn where no rest is between them."""
    pool, ends, tasks = Pool(slots=2), dict[str, asyncio.Event](), dict[str, Task]()
    for deed, number in deeds:
        name = str(number % max(1, len(tasks)))
        if deed == "start":
            new = str(len(tasks))
            ends[new] = asyncio.Event()
            tasks[new] = asyncio.create_task(pool.run(new, ends[new], Entry(str(number % 3), 10, 10)))
        elif deed == "end" and tasks:
            ends[name].set()
        elif deed == "cancel" and tasks:
            tasks[name].cancel()
        elif deed == "rest":
            await settle()
            assert pool.queue.running == 2 or not pool.queue.waiting, "work conserving"
    for event in ends.values():
        event.set()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert len(pool.calls) == len(set(pool.calls)), "nothing runs twice"
    assert {name for name, task in tasks.items() if not task.cancelled()} <= set(pool.calls), "nothing is lost"
    assert (pool.queue.waiting, pool.queue.running, pool.queue.view_tenants()) == (0, 0, [])


@given(st.lists(st.tuples(st.sampled_from(["start", "start", "end", "cancel", "rest"]), st.integers(0, 100)), max_size=60))
@settings(deadline=None)
def test_no_turn_is_lost_or_run_twice_under_random_cancels(deeds: list[tuple[str, int]]) -> None:
    """Whatever starts, ends and leaves in whatever order, all that stay run once, no slot idles while anyone waits, and nothing is left."""
    asyncio.run(play(deeds))


async def test_a_slot_is_given_on_in_the_same_loop_turn() -> None:
    """When a turn ends while another waits, the number of held slots does not drop."""
    pool, done = Pool(), asyncio.Event()
    async with pool.queue.place(ENTRY, pool.listen("a")):
        b = await pool.start("b", done)
    assert (pool.queue.running, pool.queue.waiting) == (1, 0)
    done.set()
    await b


async def test_new_slots_are_used_when_poked() -> None:
    """A worker that comes up takes waiting turns at once."""
    pool, done = Pool(slots=0), asyncio.Event()
    tasks = [await pool.start(name, done) for name in "ab"]
    assert pool.calls == []
    pool.slots = 2
    pool.queue.poke()
    await settle()
    assert pool.calls == ["a", "b"]
    done.set()
    await asyncio.gather(*tasks)


async def test_a_missed_poke_costs_a_tick_at_most() -> None:
    """Capacity that nobody told of is found by the timer."""
    pool, done = Pool(slots=0), asyncio.Event()
    task = await pool.start("a", done)
    pool.slots = 1
    done.set()
    await asyncio.wait_for(task, TICK_S * 10)
    assert pool.calls == ["a"]


async def test_a_deadline_ends_the_wait_with_an_error() -> None:
    """The caller hears why, and the place is free."""
    pool, done = Pool(slots=0), asyncio.Event()
    entry = Entry("a", 10, 10, deadline_s=time.monotonic() + 0.05)
    with pytest.raises(TidegateError) as caught:
        await pool.run("a", done, entry)
    assert caught.value.reason == "DEADLINE_PASSED"
    assert (pool.calls, pool.queue.waiting) == ([], 0)


async def test_a_listener_that_fails_ends_its_own_turn_only() -> None:
    """The error comes out of that turn's place; the others keep waiting and are told."""
    pool, done, calls = Pool(slots=0), asyncio.Event(), 0

    def fail_later(*_: float) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise ValueError("full")

    async def run_failing() -> None:
        async with pool.queue.place(ENTRY, fail_later):
            pool.calls.append("failing")

    failing = asyncio.create_task(run_failing())
    other = await pool.start("other", done)
    with pytest.raises(ValueError, match="full"):
        await failing
    assert pool.told["other"][:2] == [1, 1]
    await end(other)
    assert (pool.calls, pool.queue.waiting) == ([], 0)


async def test_nothing_ticks_when_nobody_waits() -> None:
    """The queue has no task, and its timer goes with the last that waits."""
    before = asyncio.all_tasks()
    pool, done = Pool(), asyncio.Event()
    tasks = [await pool.start(name, done) for name in "ab"]
    done.set()
    await asyncio.gather(*tasks)
    await asyncio.sleep(TICK_S * 2)
    assert pool.told == {"b": [0]}
    assert asyncio.all_tasks() == before


async def test_tokens_are_charged_as_they_come() -> None:
    """Produced tokens and the worker's word on its cache reach the tenant's counter while the turn runs."""
    pool = Pool()
    async with pool.queue.place(Entry("a", 10, 5), pool.listen("a")) as slot:
        assert pool.queue.view_tenants() == [TenantView("a", 0, 1, 20.0)]
        slot.cached(4)
        slot.produced(7)
        assert pool.queue.view_tenants() == [TenantView("a", 0, 1, 20.0)]
        slot.produced(1)
        assert pool.queue.view_tenants() == [TenantView("a", 0, 1, 22.0)]


async def test_a_turn_that_fails_frees_its_slot() -> None:
    """Errors inside the place leave by the same door."""
    pool = Pool()
    with pytest.raises(RuntimeError):
        async with pool.queue.place(ENTRY, pool.listen("a")):
            raise RuntimeError
    assert pool.queue.running == 0

"""Playing workloads: when requests are sent, which follow, and when a request is given up."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import count, repeat

import pytest
from loadtest.record import Outcome, Record
from loadtest.request import Request
from loadtest.runner import Patience, Runner

from tests.bench.waiting import until
from tests.unit.loadtest.fakes import ScriptedTarget, make_request

IMPATIENT = Patience(stall_s=0.15, request_s=0.4)


async def test_an_open_loop_sends_when_due_whatever_the_server_does() -> None:
    """Ten requests within 50 ms to a server that takes 300 ms for each: all are sent within that time."""
    target = ScriptedTarget(lambda request: [0.3])
    run = await Runner(target, Patience()).play_open(make_request(at, at * 0.005) for at in range(10))
    delays = [record.sent - record.due for record in run.records if record.sent is not None]
    assert len(delays) == 10
    assert max(delays) < 0.1
    assert [record.due - run.begin for record in run.records] == pytest.approx([at * 0.005 for at in range(10)])


async def test_requests_are_made_ahead() -> None:
    """Prompts that take 10 ms each to make, all due at once or every 30 ms, do not make sends late."""

    def make(at: int) -> Request:
        time.sleep(0.01)
        return make_request(at, max(0, at - 10) * 0.03)

    run = await Runner(ScriptedTarget(lambda request: [0.0]), Patience()).play_open(make(at) for at in range(40))
    assert [record.number for record in run.records] == list(range(40))
    delays = sorted(record.sent - record.due for record in run.records if record.sent is not None)
    assert delays[20] < 0.01


async def test_a_closed_loop_has_so_many_under_way() -> None:
    """Four callers, each with one request at a time, until the time is over."""
    running = most = 0

    class Counting(ScriptedTarget):
        async def run(self, request: Request, record: Record) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await super().run(request, record)
            running -= 1

    requests = (make_request(number) for number, _ in enumerate(repeat(None)))
    run = await Runner(Counting(lambda request: [0.02]), Patience()).play_closed(requests, concurrency=4, seconds=0.3)
    assert most == 4
    assert 20 < len(run.records) <= 60
    assert run.concurrency == 4


async def test_a_closed_loop_ends_with_its_requests() -> None:
    """Callers that find none left go."""
    run = await Runner(ScriptedTarget(lambda request: [0.01]), Patience()).play_closed([make_request(), make_request(1)], 8, 30)
    assert len(run.records) == 2


async def test_a_caller_of_a_closed_loop_that_is_refused_waits() -> None:
    """Each time longer, so that a server that sheds load at once is not flooded."""
    target = ScriptedTarget(lambda request: [Outcome.SHED])
    requests = (make_request(number) for number, _ in enumerate(repeat(None)))
    run = await Runner(target, Patience()).play_closed(requests, concurrency=2, seconds=0.5)
    assert len(run.records) <= 2 * 3  # at 0, 0.1 and 0.3 s


async def test_a_caller_of_a_closed_loop_waits_as_long_as_the_server_says() -> None:
    """Here for longer than the run lasts."""

    class Busy(ScriptedTarget):
        async def run(self, request: Request, record: Record) -> None:
            record.retry_after_s = 60
            await super().run(request, record)

    run = await Runner(Busy(lambda request: [Outcome.SHED]), Patience()).play_closed(map(make_request, count()), concurrency=2, seconds=5)
    assert len(run.records) == 2


async def test_a_silent_request_is_given_up_and_cancelled() -> None:
    """Before its first token or between two; the others go on."""
    scripts: dict[int, list[float]] = {0: [9.0], 1: [0.01, 9.0], 2: [0.05, 0.05, 0.05]}
    target = ScriptedTarget(lambda request: scripts[request.number])
    run = await Runner(target, Patience(stall_s=0.15)).play_open(make_request(at) for at in range(3))
    assert [(record.outcome, record.reason) for record in run.records] == [
        (Outcome.STALLED, "NO_FIRST_TOKEN"),
        (Outcome.STALLED, "NO_NEXT_TOKEN"),
        (Outcome.COMPLETED, ""),
    ]
    assert target.cancelled == 2


async def test_a_dripping_request_is_given_up_when_overdue() -> None:
    """It is never silent for long, but takes too long altogether."""
    target = ScriptedTarget(lambda request: repeat(0.05))
    run = await Runner(target, IMPATIENT).play_open([make_request()])
    assert [record.outcome for record in run.records] == [Outcome.OVERDUE]
    assert 4 <= len(run.records[0].arrivals) <= 12


async def test_a_follow_up_carries_the_history() -> None:
    """It is sent after the answer and the thinking time, behind the question and the answer."""
    target = ScriptedTarget(lambda request: [0.02, 0.02])
    run = await Runner(target, Patience()).play_open([make_request(follow_up=make_request(1, 0.1))])
    first, second = run.records
    assert [message.role for message in target.asked[1].messages] == ["user", "assistant", "user"]
    assert target.asked[1].messages[1].content == "xx"
    assert first.ended is not None
    assert second.due - first.ended == pytest.approx(0.1, abs=0.02)


async def test_a_failed_answer_has_no_follow_up() -> None:
    """What was not sent is counted."""
    target = ScriptedTarget(lambda request: [Outcome.FAILED])
    run = await Runner(target, Patience()).play_open([make_request(follow_up=make_request(1, follow_up=make_request(2)))])
    assert (len(run.records), run.skipped) == (1, 2)


async def test_progress_counts_as_it_goes() -> None:
    """Outcomes and tokens."""
    runner = Runner(ScriptedTarget(lambda request: [0.01, Outcome.SHED] if request.number else [0.01]), Patience())
    await runner.play_open([make_request(), make_request(1)])
    assert runner.progress.outcomes == Counter({Outcome.COMPLETED: 1, Outcome.SHED: 1})
    assert (runner.progress.tokens, runner.running) == (2, 0)


async def test_a_fault_of_the_harness_ends_the_run() -> None:
    """A target that raises is a bug, and no result may come of it."""

    class Broken:
        async def run(self, request: Request, record: Record) -> None:
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        await Runner(Broken(), Patience()).play_open([make_request()])


async def test_an_interrupted_run_leaves_nothing_behind() -> None:
    """Its requests are cancelled at the server."""
    target = ScriptedTarget(lambda request: [9.0])
    playing = asyncio.create_task(Runner(target, Patience()).play_open([make_request()]))
    await until(lambda: target.asked)
    playing.cancel()
    await asyncio.wait({playing})
    assert target.cancelled == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_lag_of_the_event_loop_is_measured() -> None:
    """A callback that blocks for 60 ms is seen."""
    loop = asyncio.get_running_loop()
    loop.call_later(0.05, time.sleep, 0.06)
    run = await Runner(ScriptedTarget(lambda request: [0.2]), Patience()).play_open([make_request()])
    assert run.lag.high > 0.05

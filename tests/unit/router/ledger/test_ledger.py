"""From recorded to written: nothing waits on the turn's path, and nothing is lost or doubled on the way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from router.errors import RouterError
from router.ledger.ledger import Ledger
from tests.bench.waiting import until
from tests.unit.router.ledger.entries import START, FakeSink, entry_of


async def test_what_is_recorded_is_written(tmp_path: Path) -> None:
    """With all its figures, once, in batches."""
    sink = FakeSink()
    async with Ledger(tmp_path, sink).running() as ledger:
        for number in range(500):
            ledger.record(entry_of(f"t{number}"))
        await ledger.written()
        assert len(sink.rows) == 500
        assert sink.calls < 20
    row = sink.rows["t7"]
    assert (row["prompt_tokens"], row["cached_tokens"], row["completion_tokens"]) == (100, 80, 10)
    assert (row["started_at"], row["ended_at"]) == ("2027-01-15T08:00:00+00:00", "2027-01-15T08:00:02.500000+00:00")


async def test_recording_waits_for_nothing(tmp_path: Path) -> None:
    """A database that hangs holds up neither turns nor what makes them safe."""
    sink = FakeSink()
    sink.open.clear()
    async with Ledger(tmp_path, sink, drain_s=0.05).running() as ledger:
        ledger.record(entry_of("a"))
        await ledger.durable()
        ledger.record(entry_of("b"))
        await ledger.durable()
        assert sink.rows == {}
    sink.open.set()
    async with Ledger(tmp_path, sink).running() as ledger:
        await ledger.written()
        assert list(sink.rows) == ["a", "b"]


async def test_a_ledger_that_stops_waits_for_no_more_turns(tmp_path: Path) -> None:
    """What was being gathered is written at once."""
    sink = FakeSink()
    async with Ledger(tmp_path, sink, gather_s=3600.0).running() as ledger:
        ledger.record(entry_of("a"))
    assert list(sink.rows) == ["a"]


async def test_the_first_entry_of_a_turn_counts(tmp_path: Path) -> None:
    """A caller who leaves right after the last token does not turn a finished turn into an aborted one of no tokens."""
    sink = FakeSink()
    async with Ledger(tmp_path, sink).running() as ledger:
        for number in range(200):
            ledger.record(entry_of(f"t{number}"))
            ledger.record(entry_of(f"t{number}", finish="cancelled", completion_tokens=0))
        await ledger.written()
    assert {(row["finish"], row["completion_tokens"]) for row in sink.rows.values()} == {("stop", 10)}
    assert len(sink.rows) == 200


async def test_entries_wait_on_disk_while_the_database_is_away(tmp_path: Path) -> None:
    """They are written once it is back, without a restart."""
    sink = FakeSink(away=True)
    async with Ledger(tmp_path, sink).running() as ledger:
        ledger.record(entry_of("a"))
        await until(lambda: sink.calls > 1)
        assert sink.rows == {}
        sink.away = False
        await ledger.written()
        assert list(sink.rows) == ["a"]


async def test_new_turns_are_refused_when_the_spool_is_full(tmp_path: Path) -> None:
    """Those that run are still recorded; when the database has caught up all is well again."""
    sink = FakeSink(away=True)
    async with Ledger(tmp_path, sink, max_bytes=1000).running() as ledger:
        ledger.require_room()
        for number in range(10):
            ledger.record(entry_of(f"t{number}"))
        await ledger.durable()
        with pytest.raises(RouterError) as caught:
            ledger.require_room()
        assert caught.value.reason == "LEDGER_FULL"
        sink.away = False
        await ledger.written()
        ledger.require_room()
    assert len(sink.rows) == 10


async def test_a_failing_disk_refuses_new_turns_and_forgets_none(tmp_path: Path) -> None:
    """What could not be written is written when the disk is well again."""
    sink, blocker = FakeSink(), tmp_path / "000000000001.jsonl"
    async with Ledger(tmp_path, sink).running() as ledger:
        for number in range(1, 4):
            (tmp_path / f"{number:012d}.jsonl").mkdir()
        ledger.record(entry_of("a"))
        await until(lambda: refuses(ledger))
        await ledger.written()
        assert not refuses(ledger)
    assert blocker.exists()
    assert list(sink.rows) == ["a"]


def refuses(ledger: Ledger) -> bool:
    try:
        ledger.require_room()
    except RouterError:
        return True
    return False


async def test_an_entry_that_the_database_refuses_holds_up_no_other(tmp_path: Path) -> None:
    """It is put aside for people."""
    sink = FakeSink(refused=frozenset({"t3"}))
    async with Ledger(tmp_path, sink).running() as ledger:
        for number in range(10):
            ledger.record(entry_of(f"t{number}"))
        await ledger.written()
    assert sorted(sink.rows) == [f"t{number}" for number in range(10) if number != 3]
    assert (tmp_path / "refused.jsonl").read_text() == entry_of("t3").to_line() + "\n"


async def test_a_running_turn_is_charged_what_was_noted_of_it(tmp_path: Path) -> None:
    """When its router ends before it does. One that was recorded is charged as recorded, though it was noted too."""
    sink, produced = FakeSink(away=True), 3
    async with Ledger(tmp_path, sink, note_s=0.01, drain_s=0.0).running() as ledger:
        for turn in ("ended", "lost"):
            ledger.begin(turn, lambda turn=turn: entry_of(turn, completion_tokens=produced))  # type: ignore[misc]
        await until((tmp_path / "running.notes").exists)
        produced = 7
        ledger.record(entry_of("ended"))
    sink.away = False
    async with Ledger(tmp_path, sink, receipts_s=0.0).running() as ledger:
        await until(lambda: len(sink.rows) == 2)
        await ledger.written()
    assert {turn: (row["finish"], row["completion_tokens"]) for turn, row in sink.rows.items()} == {
        "ended": ("stop", 10),
        "lost": ("lost", 7),
    }
    assert not (tmp_path / "running.notes").exists()


async def test_a_clock_that_was_set_back_does_not_end_turns_before_they_began(tmp_path: Path) -> None:
    """The database would refuse such an entry."""
    assert '"ended_at": "2027-01-15T08:00:00+00:00"' in replace(entry_of("a"), ended_at=START - 60).to_line()


async def test_waiting_for_safety_can_be_given_up(tmp_path: Path) -> None:
    """A caller that leaves while it waits disturbs nobody."""
    sink = FakeSink()
    async with Ledger(tmp_path, sink).running() as ledger:
        ledger.record(entry_of("a"))
        waiting = asyncio.create_task(ledger.durable())
        await asyncio.sleep(0)
        waiting.cancel()
        await ledger.written()
    assert list(sink.rows) == ["a"]

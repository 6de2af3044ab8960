"""From the end of a turn to a row in the database, once.

    record ──► buffer ──fsync──► spool on disk ──batches──► database
    (O(1))      durable() waits for this ▲           known there by the turn's id

The turn's path only appends to a list. One task moves the list to the spool, all that has gathered in one write and one fsync; another
moves the spool to the database, where a turn that is already there is not added again. So each step may be repeated after a crash of router
or database, and no step forgets before the next has the entry for good. While the database is away the spool grows, up to a bound at which
the router takes no new turns (`require_room`); running ones are still recorded.

A turn that runs when the router is killed has no end to record. Its worker knows what it made, and gives the next router of that name a
receipt (`recover`). Turns that were announced with `begin` are also noted on disk with their counts once a second, for workers that give
none: what a killed router left there, its successor records with the finish `lost` when no receipt came in time. An entry that was recorded
is older in the spool than the lost one of the same turn, and so the one that counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from router.errors import Code, RouterError, describe_fault
from router.ledger.entry import UsageEntry
from router.ledger.running import RunningTurns
from router.ledger.spool import Spool
from router.store.usage import EntriesRefused

_RETRY_S = (0.1, 5.0)

T = TypeVar("T")
log = logging.getLogger("tidegate.ledger")


class EntrySink(Protocol):
    """Where entries end up; router.store.usage in production."""

    async def add(self, entries: Sequence[str]) -> int:
        """Adds the entries that are not there yet. Raises EntriesRefused, and RouterError when it is away."""
        ...


class Ledger:
    """Records usage. One for a router, on a folder of its own; use it inside `running()`."""

    def __init__(
        self,
        folder: Path,
        sink: EntrySink,
        *,
        max_bytes: int = 256 * 1024 * 1024,
        note_s: float = 1.0,
        drain_s: float = 2.0,
        receipts_s: float = 15.0,
        gather_s: float = 0.25,
    ) -> None:
        """`receipts_s` is how long receipts for an earlier router's turns are waited for, before what was noted of them counts. What comes
        within `gather_s` is written to the database together: a statement for each turn would cost as much as the turn.
        """
        self._spool = Spool(folder)
        self._notes = RunningTurns(folder / "running.notes")
        self._sink = sink
        self._max_bytes = max_bytes
        self._note_s = note_s
        self._drain_s = drain_s
        self._receipts_s = receipts_s
        self._gather_s = gather_s
        self._lost: dict[str, UsageEntry] = {}
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")
        self._turns: dict[str, Callable[[], UsageEntry]] = {}
        self._buffer: list[str] = []
        self._recorded = self._safe = 0
        self._disk_fails = False
        self._filled, self._spooled, self._drained, self._hurry = (asyncio.Event() for _ in range(4))
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    def begin(self, turn: str, describe: Callable[[], UsageEntry]) -> None:
        """Announces a turn; `describe` gives its entry as of now, whenever asked, until it is recorded."""
        self._turns[turn] = describe

    def record(self, entry: UsageEntry) -> None:
        """Takes a turn's final entry. Does not wait."""
        self._turns.pop(entry.turn, None)
        self._append([entry.to_line()])

    def recover(self, entry: UsageEntry) -> None:
        """Takes the entry of a turn that a router lost. One that runs here was not lost: only its connection was."""
        if entry.turn not in self._turns:
            self._lost.pop(entry.turn, None)
            self._append([entry.to_line()])

    def _append(self, lines: Sequence[str]) -> None:
        self._buffer += lines
        self._recorded += len(lines)
        self._filled.set()

    async def durable(self, within_s: float | None = None) -> None:
        """Returns when all that was recorded before the call would survive a crash, or when the time has passed: a disk that fails must
        not hold up those who only tell that a turn has ended."""
        if self._safe < self._recorded:
            flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((self._recorded, flushed))
            await asyncio.wait({flushed}, timeout=within_s)

    async def written(self) -> None:
        """Returns when all that is recorded is in the database; meanwhile nothing is gathered."""
        self._hurry.set()
        try:
            await self.durable()
            await self._drained.wait()
        finally:
            self._hurry.clear()

    @property
    def has_room(self) -> bool:
        """Whether new turns can be recorded."""
        return not self._disk_fails and self._spool.pending_bytes < self._max_bytes

    def require_room(self) -> None:
        """Raises RouterError when new turns could not be recorded: the spool is full, or the disk fails."""
        if not self.has_room:
            raise RouterError(Code.UNAVAILABLE, "LEDGER_FULL", "usage cannot be recorded now", retry_after_s=5.0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Ledger]:
        """Replays what an earlier process left, then records. Leaving it keeps what the database does not take in time for the next start.

        Raises SpoolTaken, OSError.
        """
        with self._executor:
            await self._run(self._recover)
            self._spooled.set()
            work = (self._flush_for_ever(), self._write_for_ever(), self._note_for_ever(), self._give_up_lost())
            tasks = [asyncio.create_task(each) for each in work]
            try:
                yield self
            finally:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._drain_s):
                        await self.written()
                await _cancel(tasks)
                await self._run(self._finish)

    def _recover(self) -> None:
        self._spool.open()
        try:
            self._lost = {entry.turn: entry for entry in self._notes.recover()}
        except OSError:
            self._spool.close()
            raise
        if self._lost:
            log.warning("%d turns were running when the last router ended", len(self._lost))

    async def _give_up_lost(self) -> None:
        await asyncio.sleep(self._receipts_s)
        if self._lost:
            log.warning("%d of them are charged what was noted: no worker knows more", len(self._lost))
            self._append([entry.to_line() for entry in self._lost.values()])
            self._lost.clear()

    def _finish(self) -> None:
        try:
            if self._buffer:
                self._spool.append(self._buffer)
            self._notes.note(self._list_running())
        finally:
            self._spool.close()

    async def _flush_for_ever(self) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            await _persist(self._flush, "usage cannot be written to disk")

    async def _flush(self) -> None:
        lines = self._buffer[:]
        if not lines:
            return
        try:
            await self._run(self._spool.append, lines)
        except OSError:
            self._disk_fails = True
            raise
        self._disk_fails = False
        del self._buffer[: len(lines)]
        self._drained.clear()
        self._spooled.set()
        self._safe += len(lines)
        while self._waiters and self._waiters[0][0] <= self._safe:
            self._waiters.popleft()[1].set_result(None)

    async def _write_for_ever(self) -> None:
        while True:
            await self._spooled.wait()
            await self._gather()
            self._spooled.clear()
            await _persist(self._write, "usage cannot be written to the database and stays on disk")
            if not self._spooled.is_set():
                self._drained.set()

    async def _gather(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._gather_s):
                await self._hurry.wait()

    async def _write(self) -> None:
        while self._spool.pending_bytes and (chunk := await self._run(self._spool.read)):
            if chunk.lines:
                await self._add(chunk.lines)
            await self._run(self._spool.release, chunk)

    async def _add(self, lines: Sequence[str]) -> None:
        try:
            await self._sink.add(lines)
        except EntriesRefused:
            if len(lines) == 1:
                log.error("the database refuses an entry; it is in refused.jsonl")
                await self._run(self._spool.set_aside, lines[0])
                return
            middle = len(lines) // 2
            await self._add(lines[:middle])
            await self._add(lines[middle:])

    async def _note_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._note_s)
            await _persist(self._note, "running turns cannot be noted on disk")

    async def _note(self) -> None:
        if (running := self._list_running()) or not self._notes.is_empty:
            await self._run(self._notes.note, running)

    def _list_running(self) -> list[UsageEntry]:
        return [*(describe() for describe in self._turns.values()), *self._lost.values()]

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)


async def _persist(attempt: Callable[[], Coroutine[Any, Any, None]], complaint: str) -> None:
    delay, longest = _RETRY_S
    while True:
        try:
            return await attempt()
        except Exception as error:
            reason = error.reason if isinstance(error, RouterError) else describe_fault(error)
            log.warning("%s: %s", complaint, reason)
        await asyncio.sleep(delay)
        delay = min(2 * delay, longest)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

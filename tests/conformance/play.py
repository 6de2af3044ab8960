"""The workers' side: which script a request plays, and what a worker saw of each run of a case.

A run is one playing of a case. Its marker stands in the caller's message, so the prompt that reaches a worker tells which run it belongs
to, and runs do not mix even when several runners share a harness.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

from router.text.tokenizer import Tokenizer
from server.engine.base import Description, Engine, Finish, Request
from server.engine.scripted import End, Script, ScriptedEngine, Wait
from server.options import EngineOptions, describe_folder
from tests.bench.worker import Item, Worker
from tests.conformance.table import Case

_MARKER = re.compile(r"\[run (\d+)\] ")
_CONTROL_IDS = 3
"""The test model's control tokens have the ids below."""
_LATE_S = 20.0
"""Longest wait for a late attempt's end, which `/end` misses then."""


@dataclass(slots=True)
class Run:
    """One playing of a case, and what the workers saw of it. Times are of the monotonic clock."""

    number: int
    case: Case
    kept_before: int = 0
    """Streams that the router kept for callers of earlier runs."""
    calls: int = 0
    left_at: float | None = None
    """When the caller last said that it leaves its turn."""
    cancelled_at: list[float] = field(default_factory=list)
    late: str | None = None
    """With which reason the router refused the attempt to resume that was late."""

    @property
    def marker(self) -> str:
        """What the caller's message begins with."""
        return f"[run {self.number}] "

    @property
    def traceparent(self) -> str:
        """A recorded trace of this run's own."""
        return f"00-{self.trace_id:032x}-{self.number:016x}-01"

    @property
    def trace_id(self) -> int:
        return 0xC0F0 << 64 | self.number


class Runs:
    """All runs. Engines call from threads of their own."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._runs: list[Run] = []
        self._lock = threading.Lock()

    def begin(self, case: Case, kept_before: int) -> Run:
        """A new run."""
        self._runs.append(Run(len(self._runs) + 1, case, kept_before))
        return self._runs[-1]

    def find(self, text: str) -> Run:
        """The run whose marker a text holds."""
        return self._runs[int(_MARKER.findall(text)[-1]) - 1]

    def of(self, request: Request) -> Run:
        """The run that a generation belongs to."""
        return self.find(self._text(request))

    def script(self, request: Request) -> Iterator[Item]:
        """What a worker plays: the case's script for this call; the last one goes on for all further calls."""
        text = self._text(request)
        run = self.find(text)
        with self._lock:
            run.calls += 1
            steps = run.case["worker"][min(run.calls, len(run.case["worker"])) - 1]
        return (item for step in steps for item in _items(step, _MARKER.split(text)[-1], run))

    def _text(self, request: Request) -> str:
        """The prompt up to the end of the user's last message, without control tokens in it."""
        ids = list(request.prompt)
        pieces = [b"\0" if token < _CONTROL_IDS else self._tokenizer.token_bytes[token] for token in ids]
        text = b"".join(pieces).decode()
        end = text.index("\0", [match.end() for match in _MARKER.finditer(text)][-1])
        return text[:end]


class PlayingWorker(Worker):
    """A scripted worker that tells the runs when one of their generations is cancelled."""

    def __init__(self, folder: Path, runs: Runs) -> None:
        super().__init__(folder, runs.script)
        self._runs = runs

    def _build_engine(self) -> Engine:
        options = EngineOptions(self.folder, "scripted-model", "scripted", kv_blocks=self.kv_blocks, max_num_seqs=self.max_sequences)
        engine = PlayingEngine(describe_folder(options), self._actions, self.step_s, self._runs)
        self.engines.append(engine)
        return engine


class PlayingEngine(ScriptedEngine):
    """A scripted engine that knows its generations by their runs."""

    def __init__(self, description: Description, script: Script, step_s: float, runs: Runs) -> None:
        super().__init__(description, script, step_s)
        self._runs = runs
        self._by_number: dict[int, Run] = {}

    def submit(self, request: Request) -> None:
        super().submit(request)
        self._by_number[request.number] = self._runs.of(request)

    def cancel(self, number: int) -> None:
        before = self.cancelled
        super().cancel(number)
        if self.cancelled > before:
            self._by_number[number].cancelled_at.append(time.monotonic())


def _items(step: Any, said: str, run: Run) -> Iterator[Item]:
    """A step of the table as what workers play; `said` is the caller's text."""
    match step:
        case str():
            yield step
        case {"text": text, "times": times}:
            yield from repeat(text, times)
        case {"hex": digits}:
            yield bytes.fromhex(digits)
        case {"echo": True}:
            yield from said
        case {"wait": seconds}:
            yield Wait(seconds)
        case {"until": "late"}:
            deadline = time.monotonic() + _LATE_S
            while run.late is None and time.monotonic() < deadline:
                yield Wait(0.01)
        case {"end": finish}:
            yield End(Finish[finish], step.get("error"))
        case {"call": call}:
            yield from f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>\n"
        case _:
            raise ValueError("a step of the table that nobody knows")

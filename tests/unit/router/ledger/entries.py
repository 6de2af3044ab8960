"""Usage entries and sinks for tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from router.ledger.entry import UsageEntry
from router.store.database import StoreAway
from router.store.usage import EntriesRefused

START = 1_800_000_000.0


def entry_of(turn: str, **changes: Any) -> UsageEntry:
    """A turn of acme's ann: a prompt of 100 tokens, 80 of them cached, and 10 tokens of answer."""
    usual: dict[str, Any] = {
        "turn": turn,
        "tenant": "acme",
        "user": "ann",
        "key": "k",
        "model_asked": "large",
        "model_served": "large",
        "prompt_tokens": 100,
        "cached_tokens": 80,
        "completion_tokens": 10,
        "finish": "stop",
        "started_at": START,
        "ended_at": START + 2.5,
        "router": "r1",
    }
    return UsageEntry(**{**usual, **changes})


@dataclass(slots=True)
class FakeSink:
    """Keeps the first entry of each turn, as the database does; can be away, slow, or refuse some turns."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    away: bool = False
    open: asyncio.Event = field(default_factory=asyncio.Event)
    calls: int = 0

    def __post_init__(self) -> None:
        self.open.set()

    async def add(self, entries: Sequence[str]) -> int:
        self.calls += 1
        await self.open.wait()
        if self.away:
            raise StoreAway
        rows = [json.loads(line) for line in entries]
        if any(row["turn"] in self.refused for row in rows):
            raise EntriesRefused
        before = len(self.rows)
        for row in rows:
            self.rows.setdefault(row["turn"], row)
        return len(self.rows) - before

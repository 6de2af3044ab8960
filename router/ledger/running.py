"""Turns that are running, noted on disk every moment, so that a killed router leaves behind what they had used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from router.ledger.entry import UsageEntry, read_line
from router.ledger.spool import sync_folder

LOST = "lost"
"""The finish of a turn whose router died: it is charged what had been noted of it."""


class RunningTurns:
    """A file that holds the running turns as entries that have no finish yet. Call it from one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_empty = True
        """Whether nothing is noted."""

    def note(self, entries: Sequence[UsageEntry]) -> None:
        """Replaces what was noted. Raises OSError."""
        if not entries:
            return self.clear()
        draft = self._path.with_suffix(".draft")
        with draft.open("w") as file:
            file.writelines(f"{entry.to_line()}\n" for entry in entries)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)
        sync_folder(self._path.parent)
        self.is_empty = False
        return None

    def clear(self) -> None:
        """Forgets all."""
        if not self.is_empty:
            self._path.unlink(missing_ok=True)
            self.is_empty = True

    def recover(self) -> list[UsageEntry]:
        """What a killed process left, with the finish `lost`. It stays until `clear` or the next `note`. Raises OSError."""
        self.is_empty = not self._path.exists()
        return [] if self.is_empty else [replace(read_line(line), finish=LOST) for line in self._path.read_text().splitlines()]

"""What one turn used."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class UsageEntry:
    """A turn in the ledger, keyed by its id, which the router makes up: of two entries with the same id the first one counts.

    `cached_tokens` are part of `prompt_tokens`. `model_served` differs from `model_asked` when the turn was degraded, and is what it costs.
    Times are in seconds since 1970.
    """

    turn: str
    tenant: str
    user: str
    key: str
    model_asked: str
    model_served: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    finish: str
    started_at: float
    ended_at: float
    router: str

    def to_line(self) -> str:
        """One JSON object on one line, as the spool and the database take it."""
        end = max(self.started_at, self.ended_at)  # the system's clock may have been set back meanwhile
        columns = {column: getattr(self, column) for column in self.__slots__}  # asdict copies deeply, which costs thrice as much
        return json.dumps({**columns, "started_at": _to_text(self.started_at), "ended_at": _to_text(end)})


def read_line(line: str) -> UsageEntry:
    """The entry that `to_line` wrote. Raises ValueError."""
    columns = json.loads(line)
    try:
        times = {name: datetime.fromisoformat(columns[name]).timestamp() for name in ("started_at", "ended_at")}
        return UsageEntry(**{**columns, **times})
    except (KeyError, TypeError) as error:
        raise ValueError("not a usage entry") from error


def _to_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()

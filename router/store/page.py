"""Long listings in parts, each begun where the one before ended: steady while rows come and go, and as cheap at the end as at the start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Page:
    """At most `limit` rows, or all, after a place: the values that the listing orders by, of the last row seen. None is the beginning."""

    limit: int | None = None
    after: tuple[Any, ...] | None = None


ALL = Page()

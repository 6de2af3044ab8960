"""Pages of listings on the wire. A token is the place where a page ended, as text that callers only hand back."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any, Protocol, TypeVar

from router.errors import Violation, field_invalid
from router.store.page import Page

Row = TypeVar("Row")
Reader = Callable[[str], Any]

_ROWS = 100
_MAX_ROWS = 1000


class Paged(Protocol):
    """A request for a page."""

    page_size: int
    page_token: str


def read_page(request: Paged, *place: Reader) -> Page:
    """The page that a request asks for; `place` reads the parts of a place. Raises CallerError FIELD_INVALID."""
    if request.page_size > _MAX_ROWS:
        raise field_invalid(Violation("page_size", f"must be at most {_MAX_ROWS}"))
    limit = request.page_size or _ROWS
    return Page(limit, _read_token(request.page_token, place) if request.page_token else None)


def write_token(rows: Sequence[Row], page: Page, place: Callable[[Row], tuple[Any, ...]]) -> str:
    """The token for the page after these rows; empty when they are the last."""
    if page.limit is None or len(rows) < page.limit:
        return ""
    parts = [str(part) for part in place(rows[-1])]
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


def read_text(part: str) -> str:
    """A text that the database can take. Raises ValueError."""
    part.encode()  # no lone surrogates
    if "\0" in part:
        raise ValueError
    return part


def read_number(part: str) -> int:
    """A positive bigint. Raises ValueError."""
    number = int(part)
    if not 0 <= number < 2**63:
        raise ValueError
    return number


read_date, read_moment = date.fromisoformat, datetime.fromisoformat


def _read_token(token: str, place: Sequence[Reader]) -> tuple[Any, ...]:
    try:
        parts = json.loads(base64.urlsafe_b64decode(token))
        return tuple(read(part) for read, part in zip(place, parts, strict=True))
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise field_invalid(Violation("page_token", "must be the next_page_token of such a listing")) from None

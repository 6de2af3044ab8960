"""The ledger as text, row by row: CSV for spreadsheets and bills, JSON for programs. Money stays exact: decimals are text in JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from dataclasses import fields
from datetime import date
from decimal import Decimal
from typing import Any, TypeVar

from router.store.rows import UsageDayRow, UsageRow

Row = TypeVar("Row", UsageRow, UsageDayRow)


async def export_csv(kind: type[Row], rows: AsyncIterator[Row]) -> AsyncGenerator[str, None]:
    """A line of column names, then a line for each row; an unknown cost is an empty cell."""
    names = [column.name for column in fields(kind)]
    yield _to_csv(names)
    async for row in rows:
        yield _to_csv(_to_text(getattr(row, name)) for name in names)


async def export_json(kind: type[Row], rows: AsyncIterator[Row]) -> AsyncGenerator[str, None]:
    """One array with an object for each row, in pieces."""
    names = [column.name for column in fields(kind)]
    separator = "["
    async for row in rows:
        yield separator + json.dumps({name: _to_json(getattr(row, name)) for name in names})
        separator = ",\n"
    yield "]\n" if separator != "[" else "[]\n"


def _to_csv(values: Iterable[str]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(values)
    return line.getvalue()


def _to_text(value: Any) -> str:
    return "" if value is None else str(_to_json(value))


def _to_json(value: Any) -> Any:
    if isinstance(value, date):  # datetime is one
        return value.isoformat()
    return f"{value:f}" if isinstance(value, Decimal) else value

"""What administrators may see: usage, the audit log, and the queues as they are now."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from typing import Any, NamedTuple

from router.admin.checks import check_days, check_filter, require
from router.admission.queue import AdmissionQueue, TenantView
from router.auth.principal import Principal
from router.errors import CallerError, Code
from router.ledger.export import export_csv, export_json
from router.store.audit import AuditStore
from router.store.database import Database
from router.store.page import Page
from router.store.rows import AuditRow, UsageDayRow, UsageRow
from router.store.usage import UsageStore, Whose

_EXPORTS_AT_ONCE = 2  # each holds a connection, of which key look-ups and the ledger need some
_PIECE_CHARS = 64 * 1024
_AUDIT_ROWS = 100


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Usage of turns that ended on the days from first to last, both included, in UTC."""

    whose: Whose
    first: date
    last: date


class ExportRows(Enum):
    """What a row of an export stands for."""

    TURNS = "turns"
    DAYS = "days"


class ExportForm(Enum):
    """How an export is written."""

    CSV = "csv"
    JSON = "json"


class QueueView(NamedTuple):
    """A model's queue at one moment; of its tenants those that wait come first, by who goes next."""

    model: str
    waiting: int
    running: int
    slots: int
    tenants: list[TenantView]


class Reports:
    """Reads and changes nothing. Every method takes who asks, and raises CallerError PERMISSION_DENIED or FIELD_INVALID, and StoreAway."""

    def __init__(self, database: Database, queues: Mapping[str, AdmissionQueue]) -> None:
        self._database = database
        self._usage = UsageStore(database)
        self._queues = queues
        self._exports = 0

    async def list_usage_days(self, who: Principal, query: UsageQuery, page: Page) -> list[UsageDayRow]:
        """Sums by day, tenant, user, key and model."""
        self._check(who, query)
        return await self._usage.list_days(query.first, query.last, query.whose, page)

    async def export_usage(self, who: Principal, query: UsageQuery, rows: ExportRows, form: ExportForm) -> AsyncGenerator[str, None]:
        """The ledger or its sums as text, in pieces. To be closed when not read to its end. Raises CallerError EXPORTS_BUSY."""
        self._check(who, query)
        if self._exports >= _EXPORTS_AT_ONCE:
            raise exports_busy()
        self._exports += 1
        try:
            async with (
                aclosing(self._read(query, rows)) as read,
                aclosing(_FORMS[form](_KINDS[rows], read)) as lines,
                aclosing(_gather(lines)) as pieces,
            ):
                async for piece in pieces:
                    yield piece
        finally:
            self._exports -= 1

    async def list_audit(self, who: Principal, tenant: str, page: Page) -> list[AuditRow]:
        """Changes, newest first, of a tenant's or, for operators, of all; the page's place is an entry's id."""
        who.require_view(tenant)
        require(check_filter("tenant_id", tenant))
        (before,) = page.after or (None,)
        return await AuditStore(self._database).read(tenant or None, before, page.limit or _AUDIT_ROWS)

    def view_queues(self, who: Principal) -> list[QueueView]:
        """The queues of all models."""
        who.require_operator()
        return [view_queue(model, queue) for model, queue in self._queues.items()]

    def _check(self, who: Principal, query: UsageQuery) -> None:
        whose = query.whose
        who.require_view(whose.tenant)
        require(
            check_filter("filter.tenant_id", whose.tenant),
            check_filter("filter.user_id", whose.user),
            check_filter("filter.key_prefix", whose.key),
            check_filter("filter.model", whose.model),
            check_days("filter", query.first, query.last),
        )

    def _read(self, query: UsageQuery, rows: ExportRows) -> AsyncGenerator[Any, None]:
        if rows is ExportRows.DAYS:
            return self._usage.read_days(query.first, query.last, query.whose)
        since, until = (datetime.combine(day, time(), UTC) for day in (query.first, query.last + timedelta(days=1)))
        return self._usage.read(since, until, query.whose)


def view_queue(model: str, queue: AdmissionQueue) -> QueueView:
    """A model's queue as it is now."""
    tenants = sorted(queue.view_tenants(), key=lambda tenant: (not tenant.waiting, tenant.counter))
    return QueueView(model, queue.waiting, queue.running, queue.slots, tenants)


def exports_busy() -> CallerError:
    """As many exports run as the database is spared for."""
    text = f"at most {_EXPORTS_AT_ONCE} exports run at once on one router"
    return CallerError(Code.RESOURCE_EXHAUSTED, "EXPORTS_BUSY", text, retry_after_s=5.0)


async def _gather(lines: AsyncIterator[str]) -> AsyncGenerator[str, None]:
    """Lines joined to pieces worth a message."""
    piece, chars = [], 0
    async for line in lines:
        piece.append(line)
        chars += len(line)
        if chars >= _PIECE_CHARS:
            yield "".join(piece)
            piece, chars = [], 0
    if piece:
        yield "".join(piece)


_FORMS: dict[ExportForm, Callable[..., AsyncGenerator[str, None]]] = {ExportForm.CSV: export_csv, ExportForm.JSON: export_json}
_KINDS = {ExportRows.TURNS: UsageRow, ExportRows.DAYS: UsageDayRow}

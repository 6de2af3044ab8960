"""Subcommands that show usage, the audit log and the queues."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from tidegate.admin.arguments import Command, argument, count, day
from tidegate.admin.identity import ANY_TENANT
from tidegate.admin.output import Column, print_items, print_snapshot
from tidegate.admin.router import Fault, Router
from tidegate.admin.terms import NARROWER
from tidegate.v1 import admin_service_pb2 as api

_FORMATS = {"csv": api.EXPORT_FORMAT_CSV, "json": api.EXPORT_FORMAT_JSON}
_ROWS = {"turn": api.EXPORT_ROW_TURN, "day": api.EXPORT_ROW_DAY}


async def show_usage_days(router: Router, asked: Namespace) -> None:
    """Show usage by day, tenant, user, key and model."""
    days = await router.list("ListUsageDays", api.ListUsageDaysRequest(filter=_read_filter(asked)), "days")
    print_items(days, _USAGE_COLUMNS, as_json=asked.json)


async def export_usage(router: Router, asked: Namespace) -> None:
    """Write usage as CSV or JSON. It is complete when the exit code is 0; a file appears only then."""
    request = api.ExportUsageRequest(filter=_read_filter(asked), format=_FORMATS[asked.format], row=_ROWS[asked.by])
    with _open_whole(asked.output) as file:
        async with aclosing(router.stream("ExportUsage", request)) as pieces:
            async for piece in pieces:
                file.write(piece.text)


async def show_audit(router: Router, asked: Namespace) -> None:
    """Show the newest changes by administrators."""
    entries = await router.list("ListAudit", api.ListAuditRequest(tenant_id=asked.tenant), "entries", asked.limit)
    print_items(entries, _AUDIT_COLUMNS, as_json=asked.json)


async def show_queues(router: Router, asked: Namespace) -> None:
    """Show what waits and runs on this router; with --watch about every second, until Ctrl-C."""
    async with aclosing(router.stream("WatchQueues", api.WatchQueuesRequest())) as snapshots:
        async for snapshot in snapshots:
            print_snapshot(snapshot.queues, _list_lines(snapshot), _QUEUE_COLUMNS, as_json=asked.json, clear=asked.watch)
            if not asked.watch:
                return


class _Line(NamedTuple):
    """A model, or a tenant in its queue."""

    model: str
    tenant: str
    waiting: int
    running: int
    slots: int | None
    counter: float | None


def _list_lines(snapshot: Any) -> Iterator[_Line]:
    for queue in snapshot.queues:
        yield _Line(queue.model, "", queue.waiting, queue.running, queue.slots, None)
        for tenant in queue.tenants:
            yield _Line("", tenant.tenant_id, tenant.waiting, tenant.running, None, tenant.counter)


def _read_filter(asked: Namespace) -> api.UsageFilter:
    last = asked.last or datetime.now(UTC).date()
    first = asked.first or last - timedelta(days=29)
    return api.UsageFilter(
        tenant_id=asked.tenant,
        first_day=first.isoformat(),
        last_day=last.isoformat(),
        user_id=asked.user,
        key_prefix=asked.key_prefix,
        model=asked.model,
    )


@contextmanager
def _open_whole(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that takes its name when all is written."""
    if path is None:
        yield sys.stdout
        return
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            yield file
        os.replace(part, path)
    except OSError as error:
        raise Fault(f"--output: {error.filename or part}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


_USAGE_COLUMNS: tuple[Column, ...] = (
    ("DAY", lambda it: it.day),
    ("TENANT", lambda it: it.tenant_id),
    ("USER", lambda it: it.user_id),
    ("KEY", lambda it: it.key_prefix),
    ("MODEL", lambda it: it.model),
    ("TURNS", lambda it: it.turns),
    ("UNPRICED", lambda it: it.unpriced_turns),
    ("PROMPT", lambda it: it.prompt_tokens),
    ("CACHED", lambda it: it.cached_tokens),
    ("COMPLETION", lambda it: it.completion_tokens),
    ("COST", lambda it: it.cost),
)
_AUDIT_COLUMNS: tuple[Column, ...] = (
    ("AT", lambda it: it.at),
    ("ACTOR", lambda it: it.actor),
    ("ACTION", lambda it: it.action),
    ("TENANT", lambda it: it.tenant_id),
    ("TARGET", lambda it: it.target),
    ("DETAIL", lambda it: it.detail_json),
)
_QUEUE_COLUMNS: tuple[Column, ...] = tuple((name.upper(), attrgetter(name)) for name in _Line._fields)
WATCH = argument("--watch", action="store_true", help="go on")
_USAGE = (
    ANY_TENANT,
    *NARROWER,
    argument("--from", dest="first", type=day, metavar="DAY", help="first day, in UTC (default: 29 days before the last)"),
    argument("--to", dest="last", type=day, metavar="DAY", help="last day (default: today)"),
)

COMMANDS = (
    Command("usage days", show_usage_days, _USAGE),
    Command(
        "usage export",
        export_usage,
        (
            *_USAGE,
            argument("--format", choices=_FORMATS, default="csv", help="(default: csv)"),
            argument("--by", choices=_ROWS, default="turn", help="what a row is (default: turn)"),
            argument("--output", type=Path, metavar="FILE", help="(default: standard output)"),
        ),
    ),
    Command("audit", show_audit, (ANY_TENANT, argument("--limit", type=count, metavar="N", default=50, help="most entries (default: 50)"))),
    Command("queues", show_queues, (WATCH,)),
)

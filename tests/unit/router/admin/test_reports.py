"""What administrators see: the right usage, all of it, and queues as they are."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, date, datetime, timedelta

import pytest

from router.admin.reports import ExportForm, ExportRows, QueueView, Reports, UsageQuery
from router.admission.entry import Entry
from router.admission.estimate import TimeModel
from router.admission.queue import AdmissionQueue, TenantView
from router.auth.principal import Principal, Role
from router.errors import CallerError
from router.store.database import Database
from router.store.page import Page
from router.store.usage import UsageStore, Whose
from tests.bench.postgres import fresh_database
from tests.unit.router.ledger.entries import START, entry_of

OPS = Principal("house", "ops", frozenset({Role.OPERATOR}))
ADMIN = Principal("acme", "ada", frozenset({Role.TENANT_ADMIN}))
DAY = datetime.fromtimestamp(START, UTC).date()
MIDNIGHT = datetime.combine(DAY, datetime.min.time(), UTC).timestamp()


def ask(whose: Whose = Whose(), first: date = DAY, last: date = DAY) -> UsageQuery:  # noqa: B008 - frozen
    return UsageQuery(whose, first, last)


async def read_text(pieces: AsyncGenerator[str, None]) -> str:
    return "".join([piece async for piece in pieces])


async def test_an_export_is_the_sums_by_day_turn_by_turn() -> None:
    """From the first midnight of the range to the last, in UTC: bills and their proof agree."""
    hour = 3600.0
    moments = {"before": MIDNIGHT - 0.001, "first": MIDNIGHT, "last": MIDNIGHT + 24 * hour - 0.001, "after": MIDNIGHT + 24 * hour}
    entries = [entry_of(turn, started_at=end - 1, ended_at=end) for turn, end in moments.items()]
    async with fresh_database() as (database, _):
        await UsageStore(database).add([entry.to_line() for entry in entries])
        reports = Reports(database, {})
        turns = await read_text(reports.export_usage(OPS, ask(), ExportRows.TURNS, ExportForm.CSV))
        assert [row["turn"] for row in csv.DictReader(io.StringIO(turns, newline=""))] == ["first", "last"]
        days = json.loads(await read_text(reports.export_usage(OPS, ask(), ExportRows.DAYS, ExportForm.JSON)))
        assert [(row["day"], row["turns"]) for row in days] == [(DAY.isoformat(), 2)]


@pytest.mark.parametrize(
    ("whose", "turns"),
    [
        (Whose(), {"a", "b", "c", "d"}),
        (Whose("acme"), {"a", "b", "c"}),
        (Whose("acme", user="bob"), {"b"}),
        (Whose("acme", key="k2"), {"c"}),
        (Whose(model="small"), {"d"}),
        (Whose("acme", model="small"), set()),
    ],
)
async def test_usage_is_asked_for_by_tenant_user_key_and_model(whose: Whose, turns: set[str]) -> None:
    """Sums and exports alike."""
    entries = [
        entry_of("a", user="ann", key="k1"),
        entry_of("b", user="bob", key="k1"),
        entry_of("c", user="ann", key="k2"),
        entry_of("d", tenant="globex", model_served="small"),
    ]
    async with fresh_database() as (database, _):
        await UsageStore(database).add([entry.to_line() for entry in entries])
        reports = Reports(database, {})
        text = await read_text(reports.export_usage(OPS, ask(whose), ExportRows.TURNS, ExportForm.JSON))
        assert {row["turn"] for row in json.loads(text)} == turns
        assert sum(day.turns for day in await reports.list_usage_days(OPS, ask(whose), Page())) == len(turns)


async def test_pages_of_days_make_up_the_whole() -> None:
    """In order, none twice and none left out."""
    entries = [entry_of(f"{user}{day}", user=user, ended_at=START + day * 86400) for user in "abc" for day in range(3)]
    async with fresh_database() as (database, _):
        await UsageStore(database).add([entry.to_line() for entry in entries])
        reports, query, seen = Reports(database, {}), ask(last=DAY + timedelta(days=2)), []
        page = Page(2)
        while rows := await reports.list_usage_days(OPS, query, page):
            seen += rows
            page = Page(2, (rows[-1].day, rows[-1].tenant, rows[-1].user, rows[-1].key, rows[-1].model_served))
        assert seen == await reports.list_usage_days(OPS, query, Page())
        assert len(seen) == 9


async def test_few_exports_run_at_once_and_a_closed_one_makes_room() -> None:
    """Each holds a connection to the database, also while its caller does not read."""
    async with fresh_database() as (database, _):
        reports = Reports(database, {})

        def export() -> AsyncGenerator[str, None]:
            return reports.export_usage(ADMIN, ask(Whose("acme")), ExportRows.TURNS, ExportForm.CSV)

        async with AsyncExitStack() as others:
            for _ in range(2):
                await anext(await others.enter_async_context(aclosing(export())))
            with pytest.raises(CallerError) as caught:
                await anext(export())
            assert (caught.value.reason, caught.value.retry_after_s) == ("EXPORTS_BUSY", 5.0)
        assert await read_text(export())


async def test_queues_are_shown_by_who_goes_next() -> None:
    """Tenants that wait come before those that only run; no database is asked."""
    queue, done = AdmissionQueue(lambda: 1, lambda: 0.0, TimeModel()), asyncio.Event()

    async def run(tenant: str) -> None:
        async with queue.place(Entry(tenant, 10, 10), lambda *_: None):
            await done.wait()

    async with asyncio.TaskGroup() as turns:
        for tenant in ("first", "second", "second"):
            turns.create_task(run(tenant))
        await asyncio.sleep(0)
        tenants = [TenantView("second", 2, 0, 30.0), TenantView("first", 0, 1, 30.0)]
        assert Reports(Database(""), {"m": queue}).view_queues(OPS) == [QueueView("m", 2, 1, 1, tenants)]
        done.set()

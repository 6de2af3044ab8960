"""The ledger's table: prices, sums by day, and that nothing in it changes."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import psycopg
import pytest

from router.ledger.export import export_csv, export_json
from router.store.database import Database
from router.store.rows import PriceRow, UsageDayRow, UsageRow
from router.store.terms import PriceStore
from router.store.usage import EntriesRefused, UsageStore, Whose
from tests.bench.postgres import fresh_database
from tests.unit.router.ledger.entries import START, entry_of

BEGUN = datetime.fromtimestamp(START, UTC)
WHILE = (BEGUN - timedelta(days=2), BEGUN + timedelta(days=2))
DAY = date(2027, 1, 15)


async def read_costs(database: Database) -> dict[str, Decimal | None]:
    return {row.turn: row.cost async for row in UsageStore(database).read(*WHILE)}


async def test_cached_tokens_are_part_of_the_prompt_and_cost_their_own_price() -> None:
    """A prompt of 100 with 80 cached costs 20 at the full price; the cost is exact to the last digit."""
    async with fresh_database() as (database, _):
        await PriceStore(database).add(PriceRow("large", BEGUN, Decimal("12345678.000001"), Decimal("0.1"), Decimal("3")))
        await UsageStore(database).add([entry_of("a").to_line()])
        cost = (20 * Decimal("12345678.000001") + 80 * Decimal("0.1") + 10 * Decimal("3")) / 1_000_000
        assert await read_costs(database) == {"a": cost}
        (row,) = [row async for row in UsageStore(database).read(*WHILE)]
        assert (row.prompt_tokens, row.cached_tokens, row.completion_tokens) == (100, 80, 10)


async def test_a_turn_costs_what_its_model_cost_when_it_began() -> None:
    """Whenever it is written; a degraded turn costs what the model that served costs, and a model without a price is unknown, not free."""
    async with fresh_database() as (database, _):
        for model, shift, price in (("large", -9, 1), ("large", 0, 2), ("large", 9, 3), ("small", -9, 0)):
            money = Decimal(price) * 100_000
            await PriceStore(database).add(PriceRow(model, BEGUN + timedelta(seconds=shift), money, money, Decimal(0)))
        entries = [
            entry_of("before", started_at=START - 1),
            entry_of("at"),
            entry_of("degraded", model_served="small"),
            entry_of("unpriced", model_served="other"),
            entry_of("too early", started_at=START - 10),
        ]
        await UsageStore(database).add([entry.to_line() for entry in entries])
        assert await read_costs(database) == {"before": 10, "at": 20, "degraded": 0, "unpriced": None, "too early": None}


async def test_sums_are_by_the_day_a_turn_ended_in_utc() -> None:
    """A second writing of the same entries adds nothing, and unpriced turns are counted apart."""
    midnight = datetime(2027, 1, 16, tzinfo=UTC).timestamp()
    turns = [entry_of("a"), entry_of("b", ended_at=midnight - 0.001), entry_of("c", ended_at=midnight), entry_of("d", tenant="globex")]
    async with fresh_database() as (database, _):
        store, lines = UsageStore(database), [entry.to_line() for entry in turns]
        assert (await store.add(lines[:2]), await store.add(lines), await store.add(lines)) == (2, 2, 0)
        days = [day async for day in store.read_days(DAY, DAY + timedelta(days=1), Whose("acme"))]
        assert [(day.day, day.turns, day.unpriced_turns, day.prompt_tokens) for day in days] == [
            (DAY, 2, 2, 200),
            (DAY + timedelta(days=1), 1, 1, 100),
        ]
        assert len([day async for day in store.read_days(DAY, DAY)]) == 2


async def test_of_two_entries_of_a_turn_in_one_batch_the_first_counts() -> None:
    """As it does when they come apart."""
    async with fresh_database() as (database, _):
        store = UsageStore(database)
        assert await store.add([entry_of("a", finish=finish).to_line() for finish in ("stop", "cancelled", "lost")]) == 1
        assert [row.finish async for row in store.read(*WHILE)] == ["stop"]


@pytest.mark.parametrize("line", ["{", '{"turn": "a"}', entry_of("a", cached_tokens=101).to_line(), entry_of("\0").to_line()])
async def test_a_bad_entry_refuses_its_batch_and_adds_nothing(line: str) -> None:
    """Malformed, incomplete, impossible, or not text."""
    async with fresh_database() as (database, _):
        with pytest.raises(EntriesRefused):
            await UsageStore(database).add([entry_of("good").to_line(), line])
        assert await read_costs(database) == {}


async def test_entries_cannot_be_changed() -> None:
    """Not even by this program's own mistake."""
    async with fresh_database() as (database, _):
        await UsageStore(database).add([entry_of("a").to_line()])
        for statement in (b"UPDATE usage_entries SET cost = 0", b"DELETE FROM usage_entries", b"TRUNCATE usage_entries"):
            with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
                async with database.connect() as connection:
                    await connection.execute(statement)


async def test_a_tenant_reads_its_own_entries() -> None:
    """Of turns that ended from a time on and before another."""
    async with fresh_database() as (database, _):
        store = UsageStore(database)
        await store.add([entry_of("a").to_line(), entry_of("b", tenant="globex").to_line(), entry_of("c", ended_at=START + 9).to_line()])
        end = BEGUN + timedelta(seconds=9)
        assert [row.turn async for row in store.read(BEGUN, end, Whose("acme"))] == ["a"]
        assert [row.turn async for row in store.read(end, end + timedelta(seconds=1))] == ["c"]


async def test_entries_and_days_can_be_exported() -> None:
    """CSV and JSON hold the same; awkward names survive, and an unknown cost is empty."""
    async with fresh_database() as (database, _):
        store, user = UsageStore(database), 'ann, "the\nfirst" é'
        await PriceStore(database).add(PriceRow("large", BEGUN, Decimal("0.000001"), Decimal(0), Decimal(0)))
        await store.add([entry_of("a", user=user).to_line(), entry_of("b", model_served="other").to_line()])
        table = "".join([text async for text in export_csv(UsageRow, store.read(*WHILE))])
        objects = json.loads("".join([text async for text in export_json(UsageRow, store.read(*WHILE))]))
        rows = list(csv.DictReader(io.StringIO(table, newline="")))
        assert [(row["user"], row["cost"]) for row in rows] == [(user, "0.000000000020"), ("ann", "")]
        assert [(row["user"], row["cost"]) for row in objects] == [(user, "0.000000000020"), ("ann", None)]
        assert json.loads("".join([text async for text in export_json(UsageRow, store.read(WHILE[1], WHILE[1]))])) == []
        days = "".join([text async for text in export_csv(UsageDayRow, store.read_days(DAY, DAY))])
        assert [row["turns"] for row in csv.DictReader(io.StringIO(days, newline=""))] == ["1", "1"]

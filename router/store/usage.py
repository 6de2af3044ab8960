"""Queries on the usage ledger and its sums by day.

An entry is priced when it is written, by the price of the model that served at the time the turn began, so that entries spooled while the
database was away cost what they would have cost. Entries and sums change in one statement: the sums count exactly the rows it inserted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any, LiteralString

import psycopg
from psycopg.rows import class_row

from router.store.database import Database, Row, Values
from router.store.page import ALL, Page
from router.store.rows import UsageDayRow, UsageRow

# Both inserts are in the order of their keys: two routers that write the same rows in different orders would deadlock.
_ADD = """
    WITH given AS (
        SELECT DISTINCT ON (turn) * FROM ROWS FROM (jsonb_to_recordset(%s::jsonb) AS (
            turn text, tenant text, "user" text, key text, model_asked text, model_served text, prompt_tokens bigint, cached_tokens bigint,
            completion_tokens bigint, finish text, started_at timestamptz, ended_at timestamptz, router text)) WITH ORDINALITY
        ORDER BY turn, ordinality
    ), priced AS (
        SELECT given.*, price.valid_from AS priced_from,
               (price.prompt * (prompt_tokens - cached_tokens) + price.cached * cached_tokens + price.completion * completion_tokens)
                   * 0.000001 AS cost
        FROM given LEFT JOIN LATERAL (
            SELECT * FROM prices WHERE model = model_served AND valid_from <= started_at ORDER BY valid_from DESC LIMIT 1
        ) AS price ON true
    ), added AS (
        INSERT INTO usage_entries (turn, tenant, "user", key, model_asked, model_served, prompt_tokens, cached_tokens, completion_tokens,
                                   finish, started_at, ended_at, router, priced_from, cost)
        SELECT turn, tenant, "user", key, model_asked, model_served, prompt_tokens, cached_tokens, completion_tokens,
               finish, started_at, ended_at, router, priced_from, cost
        FROM priced ORDER BY turn
        ON CONFLICT (turn) DO NOTHING
        RETURNING *
    ), summed AS (
        INSERT INTO usage_days AS d
        SELECT (ended_at AT TIME ZONE 'UTC')::date, tenant, "user", key, model_served, count(*), count(*) - count(cost), sum(prompt_tokens),
               sum(cached_tokens), sum(completion_tokens), coalesce(sum(cost), 0)
        FROM added GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (day, tenant, "user", key, model_served) DO UPDATE SET
            turns = d.turns + excluded.turns,
            unpriced_turns = d.unpriced_turns + excluded.unpriced_turns,
            prompt_tokens = d.prompt_tokens + excluded.prompt_tokens,
            cached_tokens = d.cached_tokens + excluded.cached_tokens,
            completion_tokens = d.completion_tokens + excluded.completion_tokens,
            cost = d.cost + excluded.cost
    )
    SELECT count(*) AS added FROM added
"""
_WHOSE = """
    (%(tenant)s::text = '' OR tenant = %(tenant)s) AND (%(user)s::text = '' OR "user" = %(user)s)
    AND (%(key)s::text = '' OR key = %(key)s) AND (%(model)s::text = '' OR model_served = %(model)s)
"""
_ENTRIES = f"""
    SELECT turn, tenant, "user", key, model_asked, model_served, prompt_tokens, cached_tokens, completion_tokens, finish, started_at,
           ended_at, router, priced_from, cost
    FROM usage_entries
    WHERE ended_at >= %(since)s AND ended_at < %(until)s AND {_WHOSE}
    ORDER BY ended_at, turn
"""
_DAYS = f"""
    SELECT * FROM usage_days
    WHERE day >= %(first)s AND day <= %(last)s AND {_WHOSE}
      AND (day, tenant, "user", key, model_served) > (%(after_day)s, %(after_tenant)s, %(after_user)s, %(after_key)s, %(after_model)s)
    ORDER BY day, tenant, "user", key, model_served LIMIT %(limit)s
"""
_AFTER = ("after_day", "after_tenant", "after_user", "after_key", "after_model")


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose usage is meant; an empty field is anyone's. `model` is the one that served."""

    tenant: str = ""
    user: str = ""
    key: str = ""
    model: str = ""


EVERYONE = Whose()


class EntriesRefused(ValueError):
    """The database cannot take one of these entries, now or ever."""


@dataclass(frozen=True, slots=True)
class _Added:
    added: int


class UsageStore:
    """The usage ledger. Every method raises StoreAway."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, entries: Sequence[str]) -> int:
        """Adds entries, each a JSON object of columns, whose turn is not there yet; how many those were. Raises EntriesRefused."""
        try:
            return (await self._database.fetch(_Added, _ADD, [f"[{','.join(entries)}]"]))[0].added
        except (psycopg.DataError, psycopg.IntegrityError):
            raise EntriesRefused("the database refuses an entry") from None

    def read(self, since: datetime, until: datetime, whose: Whose = EVERYONE) -> AsyncGenerator[UsageRow, None]:
        """Entries of turns that ended in [since, until), by end."""
        return self._stream(UsageRow, _ENTRIES, {"since": since, "until": until, **asdict(whose)})

    def read_days(self, first: date, last: date, whose: Whose = EVERYONE) -> AsyncGenerator[UsageDayRow, None]:
        """Sums of the days from first to last, both included, in order."""
        return self._stream(UsageDayRow, _DAYS, _describe_days(first, last, whose, ALL))

    async def list_days(self, first: date, last: date, whose: Whose = EVERYONE, page: Page = ALL) -> list[UsageDayRow]:
        """The same as a listing."""
        return await self._database.fetch(UsageDayRow, _DAYS, _describe_days(first, last, whose, page))

    async def _stream(self, kind: type[Row], statement: LiteralString, values: Values) -> AsyncGenerator[Row, None]:
        # Read in pieces: a month may not fit into memory.
        async with self._database.connect() as connection, connection.transaction():
            async with connection.cursor("usage", row_factory=class_row(kind)) as cursor:
                await cursor.execute(statement, values)
                async for row in cursor:
                    yield row


def _describe_days(first: date, last: date, whose: Whose, page: Page) -> dict[str, Any]:
    after = dict(zip(_AFTER, page.after or (date.min, "", "", "", ""), strict=True))
    return {"first": first, "last": last, **asdict(whose), **after, "limit": page.limit}

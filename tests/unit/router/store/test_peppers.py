"""A database and the peppers that its keys are hashed with, through the documented steps of a change and against mistakes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from router.auth.keys import KeyHash
from router.errors import StartFailed
from router.store.database import Database
from router.store.peppers import claim_peppers
from tests.bench.postgres import fresh_database
from tests.unit.router.auth.bench import NEW, NEWER, OLD


async def start(database: Database, *peppers: bytes) -> bool:
    """Whether a router with these peppers, the one of now first, may use the database."""
    try:
        await claim_peppers(database, KeyHash(*peppers).names)
    except StartFailed as refused:
        assert "TIDEGATE_KEY_PEPPER" in str(refused)
        return False
    return True


CHANGE: Sequence[Sequence[bytes]] = ([OLD], [OLD], [NEW, OLD], [OLD], [NEW, OLD], [NEW, OLD], [NEW], [NEW])
"""Two routers through the three steps; one of them is started with the old one alone meanwhile."""


async def test_a_router_with_another_pepper_does_not_start() -> None:
    """The first router's pepper is the database's; the message says what to set."""
    async with fresh_database() as (database, _):
        assert [await start(database, pepper) for pepper in (OLD, NEW, OLD)] == [True, False, True]


async def test_a_change_in_the_documented_steps_holds_no_router_up() -> None:
    """And once it is over, the old pepper is another's."""
    async with fresh_database() as (database, _):
        assert [await start(database, *peppers) for peppers in CHANGE] == [True] * len(CHANGE)
        assert not await start(database, OLD)
        assert await start(database, NEWER, NEW)


async def test_a_change_that_was_begun_can_be_taken_back() -> None:
    """Until the old pepper is left out, routers with it alone start."""
    async with fresh_database() as (database, _):
        assert [await start(database, *peppers) for peppers in ([OLD], [NEW, OLD], [OLD], [OLD])] == [True] * 4
        assert not await start(database, NEW)


async def test_of_two_first_routers_with_two_peppers_one_starts() -> None:
    """However they meet."""
    async with fresh_database() as (database, dsn), Database(dsn).running() as other:
        for _ in range(20):
            await database.execute("DELETE FROM peppers")
            assert sorted(await asyncio.gather(start(database, OLD), start(other, NEW))) == [False, True]


@pytest.mark.parametrize("peppers", [[OLD], [NEW, OLD]])
async def test_a_database_without_names_takes_those_of_the_first_router(peppers: Sequence[bytes]) -> None:
    """One that was made before they were kept, in the midst of a change too: routers that know the old one alone start."""
    async with fresh_database() as (database, _):
        assert await start(database, *peppers)
        assert await start(database, OLD)
        assert not await start(database, NEWER)

"""Looking at the database a few times a second: absences are told once, and nothing ends the looking but its owner."""

from __future__ import annotations

import asyncio

import pytest

from router.store.database import StoreAway
from router.store.follower import Follower
from tests.bench.waiting import until


class Source:
    """Counts the looks, and may fail."""

    def __init__(self) -> None:
        self.looks = 0
        self.error: Exception | None = None

    async def look(self) -> None:
        self.looks += 1
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(("error", "told"), [(StoreAway(), "lost: STORE_AWAY"), (ValueError("words"), "lost: ValueError")])
async def test_an_absence_is_logged_once(caplog: pytest.LogCaptureFixture, error: Exception, told: str) -> None:
    """Each of them, without the words of an exception that is not ours; the looking goes on through all of them."""
    source = Source()
    follower = Follower(source.look, 0.001, "lost")
    async with follower.running():
        for absences in (1, 2):
            source.error, source.looks = error, 0
            await until(lambda: follower.is_stale)
            await until(lambda: source.looks > 2)
            assert [record.getMessage().startswith(told) for record in caplog.records] == [True] * absences
            source.error = None
            await until(lambda: not follower.is_stale)
    assert "words" not in caplog.text


async def test_a_look_under_way_ends_with_the_following() -> None:
    """Nothing is left over, though the source never answers."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def look() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with Follower(look, 0.001, "lost").running():
        await begun.wait()
    assert ended.is_set()

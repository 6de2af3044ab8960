"""Asking a few times a second what changed: absences are told once, and nothing ends the asking but its owner."""

from __future__ import annotations

import asyncio

import pytest

from router.store.database import StoreAway
from router.store.follower import Follower
from tests.bench.waiting import until


class Source:
    """Counts how often it is asked, and may fail."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None

    async def ask(self) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(("error", "told"), [(StoreAway(), "lost: STORE_AWAY"), (ValueError("words"), "lost: ValueError")])
async def test_an_absence_is_logged_once(caplog: pytest.LogCaptureFixture, error: Exception, told: str) -> None:
    """Each of them, without the words of an exception that is not ours; the asking goes on through all of them."""
    source = Source()
    follower = Follower(source.ask, 0.001, "lost")
    async with follower.running():
        for absences in (1, 2):
            source.error = error
            await until(lambda: follower.is_stale)
            asked = source.asked
            await until(lambda asked=asked: source.asked > asked + 2)
            assert [record.getMessage().startswith(told) for record in caplog.records] == [True] * absences
            source.error = None
            await until(lambda: not follower.is_stale)
    assert "words" not in caplog.text


async def test_a_question_under_way_ends_with_the_following() -> None:
    """Nothing is left over, though the source never answers."""
    asked, ended = asyncio.Event(), asyncio.Event()

    async def ask() -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with Follower(ask, 0.001, "lost").running():
        await asked.wait()
    assert ended.is_set()

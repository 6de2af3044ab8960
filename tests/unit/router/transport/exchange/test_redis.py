"""The exchange's writes in a real Redis: late, double and foreign ones do no harm."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from tidegate.v1.chat_service_pb2 import ConverseResponse

from router.transport.exchange.journal import About, Journal, load_about
from router.transport.exchange.journals import Journals
from router.transport.exchange.progress import Progress, load_progress
from router.transport.exchange.scripts import Script
from router.transport.frame_log import FrameLog
from tests.unit.router.quota.redis_server import RedisServer

KEYS = ["stream", "stream:log"]
ABOUT = About("s", ("acme", "ann"), "request-1", 60.0, b"\x00setup", b"\xffready")


@pytest.fixture
async def redis(server: RedisServer) -> AsyncIterator[Redis]:
    async with Redis.from_url(server.url) as client:
        yield client


class Home:
    """A router with one stream."""

    def __init__(self, redis: Redis, name: str = "one", max_bytes: int = 10_000) -> None:
        self.lost: list[str] = []
        self.frames = FrameLog(max_bytes)
        self.journals = Journals(redis, name, lambda _: KEYS, 10.0, self.lost.append)
        self.journal = Journal(ABOUT, self.frames, Progress(), self.journals.touch)
        self.journals.add(self.journal)

    def send(self, count: int = 1) -> None:
        """Numbers and logs frames that hold their number."""
        for _ in range(count):
            frame = ConverseResponse(sequence=self.frames.last + 1)
            self.frames.append(b"%d" % frame.sequence)
            self.journal.note(frame)


async def logged(redis: Redis) -> list[int]:
    entries: Any = await redis.xrange(KEYS[1])
    return [int(fields[b"f"]) for _, fields in entries]


async def test_a_stream_is_described_and_logged(redis: Redis) -> None:
    """All that another router needs is there, and nothing without an expiry."""
    home = Home(redis)
    home.journal.start(1)
    home.send(3)
    await home.journals.write_changed()
    await home.journals.write_changed()  # the first finds that Redis did not know the script
    values: Any = await redis.hgetall(KEYS[0])
    assert load_about(values[b"about"]) == ABOUT
    assert vars(load_progress(values[b"progress"])) == vars(home.journal.progress)
    assert (values[b"home"], int(values[b"last"])) == (b"one", 3)
    assert await logged(redis) == [1, 2, 3]
    assert [0 < await redis.pttl(key) <= 70_000 for key in KEYS] == [True, True]


async def test_redis_holds_what_its_home_holds(redis: Redis) -> None:
    """Frames that were let go, and those that arrived."""
    home = Home(redis, max_bytes=4)
    for _ in range(3):
        home.send(2)
        await home.journals.write(home.journal)
    assert await logged(redis) == [3, 4, 5, 6]
    home.frames.replay(5)
    await home.journals.write(home.journal)
    assert await logged(redis) == [6]


async def test_frames_that_arrived_before_they_were_written_count(redis: Redis) -> None:
    """Its caller came back with them, so the home dropped them unwritten: another router goes on numbering behind them all the same."""
    home = Home(redis)
    home.send(2)
    await home.journals.write(home.journal)
    home.send(4)
    home.frames.replay(5)
    await home.journals.write(home.journal)
    assert (await redis.hget(KEYS[0], "last"), await logged(redis)) == (b"6", [6])
    home.send()
    home.frames.replay(7)
    await home.journals.write(home.journal)
    assert (await redis.hget(KEYS[0], "last"), await logged(redis)) == (b"7", [])


async def test_a_write_that_is_late_undoes_nothing(redis: Redis) -> None:
    """One that was held up on its way comes behind a newer one, whole or again."""
    home = Home(redis)
    home.send(2)
    late = home.journals._news_of(home.journal)
    home.journal.start(7)
    home.send(2)
    await home.journals.write(home.journal)
    for _ in range(2):
        assert await Script("append").run(redis, KEYS, *late) == b"ok"
    values: Any = await redis.hgetall(KEYS[0])
    assert (load_progress(values[b"progress"]).last_turn, int(values[b"last"])) == (7, 4)
    assert await logged(redis) == [1, 2, 3, 4]


async def test_a_home_that_has_lost_its_stream_writes_no_more(redis: Redis) -> None:
    """It learns of the loss by its next write, once."""
    home = Home(redis)
    home.send(2)
    await home.journals.write(home.journal)
    move = Script("move")
    assert await move.run(redis, KEYS[:1], "one", "two", "x") == b"ok"
    assert await move.run(redis, KEYS[:1], "one", "three", "y") == b"moved"
    home.send(2)
    for _ in range(3):
        await home.journals.write_changed()
    assert home.lost == ["s"]
    assert await logged(redis) == [1, 2]


async def test_a_redis_that_forgets_is_told_again(redis: Redis) -> None:
    """With what is kept still."""
    home = Home(redis, max_bytes=4)
    home.send(6)
    for _ in range(2):
        await home.journals.write_changed()
    await redis.flushall()
    home.send(1)
    for _ in range(2):
        await home.journals.write_changed()
    assert await logged(redis) == [4, 5, 6, 7]
    assert await redis.hget(KEYS[0], "home") == b"one"


async def test_a_stream_that_is_over_is_forgotten(redis: Redis) -> None:
    """Here and there."""
    home = Home(redis)
    home.send(2)
    await home.journals.write(home.journal)
    home.journal.is_over = True
    home.journals.touch(home.journal)
    await home.journals.write_changed()
    home.send(1)
    await home.journals.write_changed()
    assert await redis.pttl(KEYS[0]) <= 1

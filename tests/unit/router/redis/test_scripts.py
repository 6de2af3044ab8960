"""Running scripts: many at once, in order, each for itself; what was forgotten, lost, late or cancelled; a cancelled caller stops."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from router.redis.scripts import RedisAway, Scripts
from tests.bench.authority import Authority
from tests.unit.router.quota.redis_server import RedisServer
from tests.unit.router.redis.fake_redis import FakeRedis

PATIENT_S = 5.0
"""A deadline for tests that are not about deadlines."""

SCRIPTS = {
    "shared": "",
    "echo": "return ARGV[1]",
    "append": "if ARGV[1] == 'poison' then error('bad') end return tostring(redis.call('RPUSH', 'list', ARGV[1]))",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for script, source in SCRIPTS.items():
        (tmp_path / f"{script}.lua").write_text(source)
    return tmp_path


@pytest.fixture
async def scripts(server: RedisServer, folder: Path) -> AsyncIterator[Scripts]:
    scripts = Scripts(server.url, folder, deadline_s=PATIENT_S)
    await scripts.load()
    yield scripts
    await scripts.close()


@pytest.fixture
async def fake() -> AsyncIterator[FakeRedis]:
    async with FakeRedis() as fake:
        yield fake


def append(scripts: Scripts, value: object) -> asyncio.Task[list[int]]:
    return asyncio.create_task(scripts.run("append", (), (str(value),)))


async def test_what_is_asked_at_once_runs_in_order(scripts: Scripts) -> None:
    """A thousand in one step of the event loop: each is answered with its place in the list."""
    assert await asyncio.gather(*(append(scripts, number) for number in range(1_000))) == [[place] for place in range(1, 1_001)]


async def test_an_error_is_of_one_script_alone(scripts: Scripts) -> None:
    """Those before and after it, in the same write, are answered; it itself may have run."""
    before, poisoned, after = append(scripts, "a"), append(scripts, "poison"), append(scripts, "b")
    with pytest.raises(RedisAway) as error:
        await poisoned
    assert (error.value.cause, error.value.maybe_done) == ("ERR", True)
    assert (await before, await after) == ([1], [2])


async def test_who_leaves_takes_nobodys_reply(scripts: Scripts) -> None:
    """One of three is cancelled after it was sent: the others get their own."""
    first, second, third = (append(scripts, value) for value in "abc")
    await asyncio.sleep(0)
    second.cancel()
    assert (await first, await third) == ([1], [3])
    assert second.cancelled()


async def test_forgotten_scripts_are_sent_whole(scripts: Scripts, admin: Redis) -> None:
    """All that was asked at once is answered in order, as if Redis had known them."""
    await admin.script_flush()
    assert await asyncio.gather(*(append(scripts, number) for number in range(100))) == [[place] for place in range(1, 101)]


async def test_each_has_a_deadline_of_its_own(fake: FakeRedis, folder: Path) -> None:
    """One is late and fails. What was asked after it is still waited for, and what is asked next finds another connection."""
    now = 0.0
    scripts = Scripts(fake.url, folder, deadline_s=1.0, clock=lambda: now)
    early = append(scripts, "early")
    await asyncio.wait({early}, timeout=0.4)
    late = append(scripts, "late")
    with pytest.raises(RedisAway) as error:
        await early
    assert (error.value.cause, error.value.maybe_done) == ("TimeoutError", True)
    now += 1.0  # Redis was given a rest
    other = append(scripts, "other")
    received = [await fake.receive() for _ in range(3)]
    assert [each.argument for each in received] == [b"early", b"late", b"other"]
    for number, each in enumerate(received):
        each.reply(b"%d" % number)
    assert (await late, await other, fake.connections) == ([1], [2], 2)
    await scripts.close()


async def test_a_late_event_loop_is_no_late_redis(server: RedisServer, folder: Path) -> None:
    """This router does something else for longer than the deadline, before or after what it asked was sent: Redis has answered in time."""
    hasty = Scripts(server.url, folder, deadline_s=0.05)
    await hasty.load()
    for steps in (1, 2, 3):
        asked = append(hasty, steps)
        for _ in range(steps):
            await asyncio.sleep(0)
        time.sleep(0.2)
        assert await asked == [steps]
    await hasty.close()


async def test_what_was_never_sent_was_never_done(folder: Path) -> None:
    """There is no Redis, and while it is given a rest nothing is tried."""
    now = 0.0
    scripts = Scripts(f"unix://{folder}/nobody.sock", folder, deadline_s=PATIENT_S, clock=lambda: now)
    for cause in ("ConnectionError", "it is given a rest"):
        with pytest.raises(RedisAway) as error:
            await append(scripts, "a")
        assert (error.value.cause, error.value.maybe_done) == (cause, False)
    await scripts.close()


async def test_what_is_lost_with_a_connection_is_asked_once_more(fake: FakeRedis, folder: Path) -> None:
    """On a new one, in the same order; when that is lost too, it may have been done."""
    scripts = Scripts(fake.url, folder, deadline_s=PATIENT_S)
    asked = [append(scripts, value) for value in ("answered", "lost once", "lost twice")]
    (await fake.receive()).reply(b"1")
    assert await asked[0] == [1]
    (await fake.receive()).cut()
    await fake.receive()
    once, twice = await fake.receive(), await fake.receive()
    assert (once.argument, twice.argument) == (b"lost once", b"lost twice")
    once.reply(b"2")
    assert await asked[1] == [2]
    twice.cut()
    with pytest.raises(RedisAway) as error:
        await asked[2]
    assert (error.value.cause, error.value.maybe_done) == ("ConnectionError", True)
    await scripts.close()


@pytest.mark.parametrize(
    "error",
    [
        b"READONLY You can't write against a read only replica.",
        b"MOVED 1 10.0.0.5:6379",
        b"MASTERDOWN Link with MASTER is down",
        b"ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write against a read only replica.",
    ],
    ids=lambda error: error[:8].decode(),
)
async def test_a_redis_that_writes_no_more_is_left(fake: FakeRedis, folder: Path, error: bytes) -> None:
    """After a failover the old connection goes on living: what it refused is asked once more, on a new one, which later scripts use too."""
    scripts = Scripts(fake.url, folder, deadline_s=PATIENT_S)
    asked = [append(scripts, value) for value in ("a", "b")]
    for _ in range(2):
        (await fake.receive()).refuse(error)
    for reply in (b"1", b"2"):
        (await fake.receive()).reply(reply)
    assert [await it for it in asked] == [[1], [2]]
    asked = [append(scripts, "c")]
    (await fake.receive()).reply(b"3")
    assert (await asked[0], fake.connections) == ([3], 2)
    asked = [append(scripts, "d")]
    for _ in range(2):
        (await fake.receive()).refuse(error)
    with pytest.raises(RedisAway):
        await asked[0]
    await scripts.close()


async def test_a_reply_to_nothing_ends_the_connection(fake: FakeRedis, folder: Path) -> None:
    """Or every later one would be taken for that of the script before."""
    scripts = Scripts(fake.url, folder, deadline_s=PATIENT_S)
    asked = append(scripts, "a")
    received = await fake.receive()
    received.reply(b"1\r\n+77")
    assert await asked == [1]
    asked = append(scripts, "b")
    while (received := await fake.receive()).argument != b"b" or received.writer.is_closing():
        pass
    received.reply(b"2")
    assert await asked == [2]
    await scripts.close()


async def test_a_url_may_ask_for_more(folder: Path) -> None:
    """Encryption, a password and a database: the connection that is taken over from the client has them all."""
    authority = Authority(folder / "authority")
    authority.issue("server", "IP:127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.folder / "server.pem", authority.folder / "server.key")
    async with FakeRedis(tls) as fake:
        url = f"rediss://:secret@127.0.0.1:{fake.port}/3?ssl_ca_certs={authority.folder}/ca.pem"
        scripts = Scripts(url, folder, deadline_s=PATIENT_S)
        asked = append(scripts, "a")
        (await fake.receive()).reply(b"1")
        assert await asked == [1]
        assert [b"AUTH", b"secret"] in fake.greetings
        assert [b"SELECT", b"3"] in fake.greetings
        await scripts.close()


async def test_a_closed_one_leaves_nobody_waiting(fake: FakeRedis, folder: Path) -> None:
    """Neither who was sent nor who waits for a connection."""
    scripts = Scripts(fake.url, folder, deadline_s=PATIENT_S)
    asked = append(scripts, "a")
    await fake.receive()
    await scripts.close()
    with pytest.raises(RedisAway, match="it is closed"):
        await asked


@pytest.mark.parametrize("is_connected", [True, False])
async def test_a_cancellation_is_never_swallowed(server: RedisServer, folder: Path, is_connected: bool) -> None:
    """At whichever step of the event loop it comes: while connecting, sending or reading, and although Redis answers."""
    for steps in [*range(12)] * 3:
        scripts = Scripts(server.url, folder, deadline_s=PATIENT_S)
        if is_connected:
            await scripts.load()
        task = asyncio.create_task(scripts.run("echo", (), (7,)))
        for _ in range(steps):
            await asyncio.sleep(0)
        had_answer = task.done()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled() or had_answer
        assert await scripts.run("echo", (), (7,)) == [7]
        await scripts.close()

"""Where workers are, and what is believed of what sources tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from router.routing.discovery import Addresses, DiscoveryFailed, Dns, Source, Static, WatchedFile, follow, read_addresses, resolve
from tests.bench.waiting import until

A, B, C = "10.0.0.1:8001", "10.0.0.2:8001", "10.0.0.3:8001"


class Script:
    """A source that tells what a test puts in: sets, errors, and None for its end."""

    name = "script"

    def __init__(self) -> None:
        self.watches = 0
        self._told: asyncio.Queue[Sequence[str] | Exception | None] = asyncio.Queue()

    def tell(self, *told: Sequence[str] | Exception | None) -> None:
        for it in told:
            self._told.put_nowait(it)

    async def watch(self) -> AsyncGenerator[Addresses, None]:
        self.watches += 1
        while (told := await self._told.get()) is not None:
            if isinstance(told, Exception):
                raise told
            yield frozenset(told)


@asynccontextmanager
async def following(source: Source) -> AsyncIterator[list[list[str]]]:
    """The sets that are believed, as they come."""
    seen: list[list[str]] = []

    async def collect() -> None:
        async with aclosing(follow(source, settle_s=0.02, retry_s=(0.001,))) as sets:
            async for addresses in sets:
                seen.append(sorted(addresses))  # noqa: PERF401 - as they come

    task = asyncio.create_task(collect())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def seen_is(seen: list[list[str]], *expected: list[str]) -> Callable[[], bool]:
    return lambda: seen == list(expected)


async def test_only_changes_are_told() -> None:
    """Equal sets in a row are one."""
    source = Script()
    async with following(source) as seen:
        source.tell([A])
        await until(seen_is(seen, [A]))
        source.tell([A], [A], [A])
        await asyncio.sleep(0.05)
        source.tell([A, B])
        await until(seen_is(seen, [A], [A, B]))


async def test_many_changes_at_once_are_one() -> None:
    """A rollout that replaces pod after pod is not followed step by step; the first set is not waited for."""
    source = Script()
    async with following(source) as seen:
        source.tell([A])
        await until(seen_is(seen, [A]))
        source.tell([A, B], [B], [B, C], [C], [A, C])
        await until(seen_is(seen, [A], [A, C]))


async def test_an_empty_answer_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It is more likely that discovery is wrong than that all workers have gone; said once, not as often as it is heard."""
    source = Script()
    async with following(source) as seen:
        source.tell([], [A, B], [], [], [])
        await until(seen_is(seen, [A, B]))
        source.tell([A], [])
        await until(seen_is(seen, [A, B], [A]))
        await until(lambda: caplog.messages == ["workers from script: there are none"] * 3)


async def test_a_failing_source_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """What was known stays known; one failure, however often it repeats, is one line."""
    source = Script()
    async with following(source) as seen:
        source.tell([A], *[DiscoveryFailed("no answer")] * 5)
        await until(lambda: source.watches == 6)
        source.tell(RuntimeError("a bug, with words that are not for the log"), [A, B])
        await until(seen_is(seen, [A], [A, B]))
    assert caplog.messages[0] == "workers from script: no answer"
    assert len(caplog.messages) == 2
    assert "RuntimeError" in caplog.messages[1]
    assert "not for the log" not in caplog.text


async def test_a_source_that_ends_is_believed_to_its_end() -> None:
    """The last set is told, and no more waited for."""
    source = Script()
    source.tell([A], [A, B], None)
    async with aclosing(follow(source)) as sets:
        assert [sorted(addresses) async for addresses in sets][-1] == [A, B]


async def test_a_table_is_not_flooded(caplog: pytest.LogCaptureFixture) -> None:
    """Of too many addresses the first are used, always the same ones."""
    source = Script()
    many = [f"10.0.{number // 256}.{number % 256}:8001" for number in range(2000)]
    async with following(source) as seen:
        source.tell(many)
        await until(lambda: bool(seen))
    assert seen == [sorted(many)[:1024]]
    assert "2000, of which 1024 are used" in caplog.text


async def test_the_configurations_workers_never_change() -> None:
    """They are told once."""
    async with aclosing(follow(Static([B, A]))) as sets:
        assert [sorted(addresses) async for addresses in sets] == [[A, B]]


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


async def test_a_file_is_followed(tmp_path: Path, executor: Executor, caplog: pytest.LogCaptureFixture) -> None:
    """Also when it is replaced, as a mounted ConfigMap is; while it is away, empty or wrong nothing changes."""
    path = tmp_path / "workers"
    path.write_text(f"{A}  # the first\n\n# {C}\n")
    async with following(WatchedFile(path, executor, period_s=0.005)) as seen:
        await until(seen_is(seen, [A]))
        path.unlink()
        await until(lambda: "FileNotFoundError" in caplog.text)
        path.write_text("")
        await until(lambda: "there are none" in caplog.text)
        path.write_text(f"{A}\nhttp://{B}\n")
        await until(lambda: "line 2 is not host:port" in caplog.text)
        (tmp_path / "new").write_text(f"{A}\n{B}\n")
        (tmp_path / "new").rename(path)
        await until(seen_is(seen, [A], [A, B]))


@pytest.mark.parametrize("line", ["10.0.0.1", "10.0.0.1:", ":8001", "a b:1", "host:port", "::1:8001", "unix:/tmp/x", "10.0.0.1:99999"])
def test_what_is_no_address_is_refused(line: str) -> None:
    """With its line, and without its words."""
    with pytest.raises(DiscoveryFailed, match="line 1 is not host:port"):
        read_addresses(line)
    assert read_addresses("[::1]:8001\nworker-0.workers:8001") == {"[::1]:8001", "worker-0.workers:8001"}


async def test_a_name_is_resolved_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    """Each address is a worker; while the resolver fails those known stay."""
    answers: list[list[str] | OSError] = [["10.0.0.1"], OSError("no such name"), [], ["10.0.0.2", "10.0.0.1"]]

    async def answer(host: str, port: int) -> Sequence[str]:
        assert (host, port) == ("workers", 8001)
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(found, OSError):
            raise found
        return found

    async with following(Dns("workers", 8001, period_s=0.005, resolve=answer)) as seen:
        await until(lambda: bool(seen) and seen[-1] == [A, B])
    assert ["OSError" in caplog.text, "there are none" in caplog.text] == [True, True]


async def test_a_resolver_that_hangs_is_given_up() -> None:
    """And asked again."""

    async def hang(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(60)
        return []

    with pytest.raises(DiscoveryFailed, match="TimeoutError"):
        await anext(Dns("workers", 8001, period_s=0.005, resolve=hang).watch())


async def test_a_pod_with_two_addresses_is_one_worker() -> None:
    """IPv4 goes before IPv6, which is used when there is nothing else."""

    async def both(host: str, port: int) -> Sequence[str]:
        return ["fd00::1", "10.0.0.1"]

    async def only(host: str, port: int) -> Sequence[str]:
        return ["fd00::1"]

    assert await anext(Dns("workers", 8001, resolve=both).watch()) == {A}
    assert await anext(Dns("workers", 8001, resolve=only).watch()) == {"[fd00::1]:8001"}


async def test_the_systems_resolver_is_asked() -> None:
    """Without a resolver of one's own."""
    assert list(await resolve("127.0.0.1", 8001)) == ["127.0.0.1"]

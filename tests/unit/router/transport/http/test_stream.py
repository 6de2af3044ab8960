"""A streamed answer: when its status goes out, who writes what, and that order holds while the caller does not read."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from router.errors import CallerError, engine_failed, model_unknown
from router.model import Failed, Finished, FinishReason, Queued, Started, TextDelta, TurnEvent, Usage
from router.transport.http.chunks import ChunkWriter
from router.transport.http.exchange import Exchange
from router.transport.http.forms import CHAT
from router.transport.http.steps import Steps
from router.transport.http.stream import EventStream
from tests.bench.waiting import until

STARTED = Started("m", "w", 5, 100)
DONE: list[TurnEvent] = [Usage(5, 2), Finished(FinishReason.STOP)]


class FakeExchange:
    """Keeps what is written, in order: `sent` by the task, `direct` by sinks. Closed, its gate holds the task up."""

    def __init__(self) -> None:
        self.begun = False
        self.body = b""
        self.sent: list[bytes] = []
        self.direct: list[bytes] = []
        self.is_whole = False
        self.is_ready = True
        self.gate = asyncio.Event()
        self.gate.set()
        self.connection = self

    async def start_events(self, headers: Any) -> None:
        self.begun = True

    async def send(self, data: bytes, *, more: bool) -> None:
        await self.gate.wait()
        self.sent.append(data)
        self.body += data
        self.is_whole = not more

    def write_piece(self, data: bytes) -> None:
        self.direct.append(data)
        self.body += data

    def close(self) -> None:
        """The caller stops reading."""
        self.is_ready = False
        self.gate.clear()

    def open(self) -> None:
        """It reads again."""
        self.is_ready = True
        self.gate.set()

    @property
    def events(self) -> list[str]:
        """What a client sees: texts, finishes, errors and the end."""
        told = []
        for line in self.body.decode().split("\n"):
            if line.startswith("data: "):
                told += [line[6:]] if line == "data: [DONE]" else _tell(json.loads(line[6:]))
        return told


def _tell(chunk: Any) -> list[str]:
    if "error" in chunk:
        return [f"error {chunk['error']['code']}"]
    return [choice["delta"].get("content") or choice["finish_reason"] or "" for choice in chunk["choices"]] or ["usage"]


class Bench:
    """A stream whose task runs."""

    def __init__(self, choices: int, hold_s: float, heartbeat_s: float) -> None:
        self.exchange = FakeExchange()
        self.stream = EventStream(choices, lambda started: ChunkWriter(CHAT, {"id": "x"}, with_usage=False), Steps(), with_usage=False)
        self.task = asyncio.create_task(self.stream.send(cast(Exchange, self.exchange), hold_s=hold_s, heartbeat_s=heartbeat_s))

    def put(self, *events: TurnEvent | str, choice: int = 0) -> None:
        """Gives events of a turn to the sink; a text is a delta."""
        self.stream.put(choice, [TextDelta(it) if isinstance(it, str) else it for it in events])


@asynccontextmanager
async def stream(choices: int = 1, hold_s: float = 60.0, heartbeat_s: float = 60.0) -> AsyncIterator[Bench]:
    bench = Bench(choices, hold_s, heartbeat_s)
    try:
        yield bench
    finally:
        bench.task.cancel()
        await asyncio.wait({bench.task})


async def settle() -> None:
    """Lets the task go as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_status_waits_for_content() -> None:
    """Queued and started are no content; the first text is."""
    async with stream() as it:
        it.put(Queued(1, 1.0, 0.5, 2.0))
        it.put(STARTED)
        await settle()
        assert not it.exchange.begun
        it.put("a")
        await settle()
        assert it.exchange.events == ["", "a"]


async def test_a_failure_before_content_has_its_own_status() -> None:
    """It is raised, for whoever answers with it."""
    async with stream() as it:
        it.put(STARTED)
        it.put(Failed(model_unknown()))
        with pytest.raises(CallerError, match="no such model"):
            await it.task
        assert not it.exchange.begun


async def test_the_status_does_not_wait_for_ever() -> None:
    """After the time to hold it back it goes out, with the place in the queue if there is one; a later failure is an event."""
    async with stream(hold_s=0.01) as it:
        it.put(Queued(2, 1.0, 0.5, 2.0))
        await until(lambda: it.exchange.begun)
        await settle()
        assert it.exchange.body.startswith(b': queued\ntidegate: {"queued":{"position":2,')
        it.put(Queued(1, 1.0, 0.5, 2.0))
        await settle()
        assert it.exchange.body.count(b"tidegate: ") == 2
        it.put(Failed(engine_failed()))
        await it.task
        assert (it.exchange.events, it.exchange.is_whole) == (["error engine_failed"], True)


async def test_each_step_is_written_without_the_task() -> None:
    """While the caller reads, no task wakes for a token."""
    async with stream() as it:
        it.put(STARTED)
        it.put("a")
        await settle()
        sent = len(it.exchange.sent)
        for text in "bcd":
            it.put(text)
            await settle()
        assert len(it.exchange.direct) == 3
        assert len(it.exchange.sent) == sent
        it.put(*DONE)
        await it.task
        assert it.exchange.events == ["", "a", "b", "c", "d", "stop", "[DONE]"]
        assert it.exchange.is_whole


async def test_all_that_a_step_brings_is_one_piece() -> None:
    """Tokens of several choices, or several of one, are written together when the frame has been read."""
    async with stream(2) as it:
        it.put(STARTED)
        it.put(STARTED, choice=1)
        it.put("a")
        it.put("b", choice=1)
        await settle()
        it.put("c")
        it.put("d", choice=1)
        it.put("e", choice=1)
        assert it.exchange.direct == []
        await settle()
        assert len(it.exchange.direct) == 1
        assert it.exchange.events[-2:] == ["c", "de"]


async def test_what_comes_while_nobody_reads_is_joined() -> None:
    """It is one chunk when the caller reads again, behind what was under way and before what comes next."""
    async with stream() as it:
        it.put(STARTED)
        it.put("a")
        await settle()
        it.exchange.close()
        for text in ("b", "c", "d"):
            it.put(text)
            await settle()
        it.exchange.open()
        it.put("e")
        await settle()
        it.put("f")
        it.put(*DONE)
        await it.task
        assert it.exchange.events == ["", "a", "b", "cde", "f", "stop", "[DONE]"]


@pytest.mark.parametrize("seed", range(20))
async def test_order_holds_however_the_caller_reads(seed: int) -> None:
    """Each choice's text is whole and in order, through any sequence of pauses."""
    chance, texts = random.Random(seed), ["", ""]
    async with stream(2) as it:
        it.put(STARTED)
        it.put(STARTED, choice=1)
        for at in range(200):
            match chance.randrange(5):
                case 0:
                    it.exchange.close()
                case 1:
                    it.exchange.open()
                case 2:
                    await settle()
                case _:
                    choice = chance.randrange(2)
                    it.put(f"{at} ", choice=choice)
                    texts[choice] += f"{at} "
        it.put(*DONE)
        it.put(*DONE, choice=1)
        it.exchange.open()
        await it.task
    told = ["", ""]
    for line in it.exchange.body.decode().split("\n\n"):
        if line.startswith("data: {"):
            (choice,) = json.loads(line[6:])["choices"]
            told[choice["index"]] += choice["delta"].get("content", "")
    assert told == texts
    assert it.exchange.events[-1] == "[DONE]"


async def test_a_failure_ends_the_stream() -> None:
    """Behind what was written; what other choices bring afterwards is dropped."""
    async with stream(2) as it:
        it.put(STARTED)
        it.put("a")
        await settle()
        it.put(Usage(5, 1), Failed(engine_failed()))
        it.put("late", choice=1)
        await it.task
        assert it.exchange.events[-1] == "error engine_failed"
        assert "[DONE]" not in it.exchange.events


async def test_all_choices_end_it() -> None:
    """One that has finished leaves the others their time."""
    async with stream(2) as it:
        it.put(STARTED)
        it.put("a")
        it.put(*DONE)
        await settle()
        assert not it.task.done()
        it.put(STARTED, choice=1)
        it.put("b", choice=1)
        it.put(*DONE, choice=1)
        await it.task
        assert it.exchange.events == ["", "a", "stop", "", "b", "stop", "[DONE]"]


async def test_a_cancelled_turn_is_no_whole_answer() -> None:
    """Were it not the caller who cancelled, it would see an error."""
    async with stream() as it:
        it.put(STARTED)
        it.put("a")
        await settle()
        it.put(Usage(5, 1), Finished(FinishReason.CANCELLED))
        await it.task
        assert it.exchange.events == ["", "a", "error internal"]


async def test_quiet_streams_hold_comments() -> None:
    """Before content and between two texts."""
    async with stream(hold_s=0.01, heartbeat_s=0.02) as it:
        it.put(STARTED)
        await until(lambda: it.exchange.body.count(b": keep-alive\n") >= 2)
        it.put("a")
        await until(lambda: it.exchange.body.count(b": keep-alive\n") >= 4)
        it.put(*DONE)
        await it.task
        assert it.exchange.events == ["", "a", "stop", "[DONE]"]


async def test_unread_text_is_kept_once() -> None:
    """A long answer that nobody reads is a single text when it is read, and each piece costs the same."""
    events: Sequence[TurnEvent] = [TextDelta("0123456789")]
    async with stream() as it:
        it.put(STARTED)
        it.put("a")
        await settle()
        it.exchange.close()
        for _ in range(100_000):
            it.stream.put(0, events)
        it.put(*DONE)
        it.exchange.open()
        await it.task
        assert [len(text) for text in it.exchange.events] == [0, 1, 1_000_000, 4, 6]

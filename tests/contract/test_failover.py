"""A worker that is lost in the middle of an answer: the caller notices nothing but a pause, or is told that the answer cannot be had."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tidegate import Session, TidegateError, Turn
from tidegate.v1.event_pb2 import FINISH_REASON_LENGTH
from tidegate.v1.turn_pb2 import ResponseFormat

from server.engine.base import Request
from tests.bench.router import Router, run_router
from tests.bench.tenants import entries
from tests.bench.waiting import until
from tests.bench.whole import ask
from tests.bench.worker import Break, End, Finish, Item, Worker

TOKENS = 60
SCHEMA = ResponseFormat(json_schema='{"type": "string"}')


def alphabet(request: Request) -> Sequence[str]:
    """What a greedy model says: the next letter depends on the whole sequence so far, here on its length."""
    return [chr(97 + (len(request.prompt) + at) % 26) for at in range(request.max_new_tokens)]


@dataclass(frozen=True, slots=True)
class Several:
    """Workers behind one router, any of which can be lost."""

    router: Router
    workers: Sequence[Worker]

    async def lose_busy(self) -> None:
        """Takes a worker away that runs something, as a crash does."""
        for worker in self.workers:
            if worker.engine.has_work():
                return await worker.stop()
        return None


@asynccontextmanager
async def several(*workers: Worker) -> AsyncIterator[Several]:
    """A router in front of all of them."""
    async with AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker.running())
        router = await stack.enter_async_context(run_router(workers[0].folder, *(worker.address for worker in workers)))
        yield Several(router, workers)


@pytest.mark.parametrize("at", [1, 7, 30, 59])
async def test_an_answer_goes_on_where_it_stopped(chatml: Path, at: int) -> None:
    """Its text is that of an undisturbed run, without gap or repetition; usage and ledger know of one answer."""
    async with several(*(Worker(chatml, alphabet, step_s=0.003) for _ in range(2))) as two:
        async with two.router.client() as client, client.session() as session:
            undisturbed = await (await session.start(ask(), max_output_tokens=TOKENS)).text()
            text, kinds = await disturbed(two, session, at)
            assert text == undisturbed
            assert kinds.count("started") == 1
        first, second = await entries(two.router)
        assert (second.completion_tokens, second.prompt_tokens, second.finish) == (TOKENS, first.prompt_tokens, "length")


async def disturbed(two: Several, session: Session, at: int) -> tuple[str, list[str]]:
    """Runs a turn and takes its worker away when so many letters have come; its text and kinds of events."""
    turn, text, kinds, lost = await session.start(ask(), max_output_tokens=TOKENS), "", [], False
    async with asyncio.TaskGroup() as losing:
        async for event in turn:
            text += event.text_delta.text
            kinds.append(str(event.WhichOneof("event")))
            if len(text) >= at and not lost:
                lost = True
                losing.create_task(two.lose_busy())
    assert turn.finish_reason == FINISH_REASON_LENGTH
    assert turn.usage is not None
    assert turn.usage.completion_tokens == TOKENS
    return text, kinds


@pytest.mark.parametrize("fault", [End(Finish.FAILED, "out of memory"), End(Finish.CANCELLED), End(Finish.TIMED_OUT), Break()])
async def test_a_worker_that_gives_a_turn_up_is_as_good_as_lost(chatml: Path, fault: Item) -> None:
    """The other takes the turn; the tokens of the first stay."""
    faulty = [Worker(chatml, lambda request: flaky(request, fault)) for _ in range(2)]
    async with several(*faulty) as two, two.router.client() as client, client.session() as session:
        assert len(await (await session.start(ask(), max_output_tokens=TOKENS)).text()) == TOKENS
        assert sum(worker.calls for worker in faulty) == 2


def flaky(request: Request, fault: Item) -> list[Item]:
    """Gives up after ten letters, once: a turn that goes on has fewer to make."""
    letters: list[Item] = [*alphabet(request)]
    return [*letters[:10], fault] if request.max_new_tokens == TOKENS else letters


async def test_a_turn_tries_three_workers_and_tells_its_caller_not_to(chatml: Path) -> None:
    """So an outage costs three calls of workers however often callers ask again; the error has no time to come again."""
    dying = [Worker(chatml, ["a", End(Finish.FAILED)]) for _ in range(4)]
    async with several(*dying) as two, two.router.client() as client, client.session() as session:
        turn = await session.start(ask(), max_output_tokens=TOKENS)
        with pytest.raises(TidegateError) as failure:
            await turn.text()
        assert (failure.value.reason, failure.value.retry_after) == ("ENGINE_FAILED", None)
        assert sum(worker.calls for worker in dying) == 3


async def test_an_answer_that_is_bound_to_a_form_is_made_again_and_goes_on_if_it_is_the_same(chatml: Path) -> None:
    """What was told is not told again, and the second worker was asked with the first's prompt and seed."""
    seen: list[Request] = []

    def play(request: Request) -> list[Item]:
        seen.append(request)
        return [*'"abcdefg"'] if len(seen) > 1 else [*'"abc', End(Finish.FAILED)]

    workers = [Worker(chatml, play) for _ in range(2)]
    async with several(*workers) as two, two.router.client() as client, client.session() as session:
        turn = await session.start(ask(), max_output_tokens=TOKENS, response_format=SCHEMA)
        assert await turn.text() == '"abcdefg"'
        assert seen[0].prompt == seen[1].prompt
        assert seen[0].sampling == seen[1].sampling
        (entry,) = await entries(two.router)
        assert entry.completion_tokens == len('"abcdefg"')


@pytest.mark.parametrize("second", ['"abXdefg"', '"a"'])
async def test_an_answer_that_comes_out_otherwise_fails_cleanly(chatml: Path, second: str) -> None:
    """Nothing of the second making is told: half of the one and half of the other would be corrupt."""
    made = 0

    def play(request: Request) -> list[Item]:
        nonlocal made
        made += 1
        return [*second] if made > 1 else [*'"abc', End(Finish.FAILED)]

    async with several(*(Worker(chatml, play) for _ in range(2))) as two:
        async with two.router.client() as client, client.session() as session:
            turn, text = await session.start(ask(), max_output_tokens=TOKENS, response_format=SCHEMA), ""
            with pytest.raises(TidegateError, match="cannot be continued"):
                async for event in turn:
                    text += event.text_delta.text
            assert text == '"abc'


async def test_a_request_that_brings_workers_down_is_tried_no_more(chatml: Path) -> None:
    """After the second worker that was lost under it, it is refused; others are served by who is left."""
    killers = [Worker(chatml, lambda request: [*"ab"] if request.max_new_tokens < TOKENS else ["a"] * 2000, step_s=0.01) for _ in range(3)]
    async with several(*killers) as two, two.router.client() as client, client.session() as session:
        turn = await session.start(ask("poison"), max_output_tokens=TOKENS)
        failing = asyncio.create_task(turn.text())
        for _ in range(2):
            await until(lambda: any(worker.engine.has_work() for worker in killers))
            await two.lose_busy()
        with pytest.raises(TidegateError, match="lost"):
            await failing
        again = await session.start(ask("poison"), max_output_tokens=TOKENS)
        with pytest.raises(TidegateError) as refused:
            await again.text()
        assert refused.value.reason == "REQUEST_QUARANTINED"
        assert await (await session.start(ask("harmless"), max_output_tokens=2)).text() == "ab"


@pytest.mark.parametrize("same", [True, False])
async def test_a_form_holds_at_whichever_token_the_worker_is_lost(chatml: Path, same: bool) -> None:
    """At each of its sixty tokens: a JSON answer arrives whole and valid, or the turn fails and what was told is its beginning."""
    answer = json.dumps({"name": "Ada Lovelace", "born": 1815, "known": "engines"})
    script = LostAt(answer, answer if same else answer.replace("Ada", "Eve"))
    async with several(*(Worker(chatml, script, step_s=0.0005) for _ in range(2))) as two:
        async with two.router.client() as client, client.session() as session:
            for script.lost_at in range(len(answer)):
                text, is_whole = await read(await session.start(ask(), max_output_tokens=TOKENS, response_format=SCHEMA))
                if is_whole:
                    assert text == (script.second if script.lost_at <= answer.index("Ada") else answer)
                else:
                    assert not same
                    assert answer.startswith(text)


class LostAt:
    """Every first call gives up after `lost_at` tokens; every second one answers in full."""

    def __init__(self, first: str, second: str) -> None:
        self.second = second
        self.lost_at = 0
        self._first = first
        self._calls = 0

    def __call__(self, request: Request) -> list[Item]:
        self._calls += 1
        return [*self._first[: self.lost_at], End(Finish.FAILED)] if self._calls % 2 else [*self.second]


async def read(turn: Turn[str]) -> tuple[str, bool]:
    """A turn's text, and whether it was whole."""
    text = ""
    try:
        async for event in turn:
            text += event.text_delta.text
    except TidegateError:
        return text, False
    return text, True

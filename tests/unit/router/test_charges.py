"""What turns are charged, for any interleaving of tokens, cancels, failures and waits: what the engine made, once, within the limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.errors import worker_lost
from router.model import Failed, Finished, FinishReason, Message, Role, TurnEvent, TurnRequest, WorkerFinish
from router.quota.limits import Limits, Price
from router.quota.quota import SLICE_TOKENS
from router.text.tokenizer import Tokenizer
from tests.budget import examples
from tests.unit.router.pipeline_bench import Bench

TURNS = 6
SLOTS = 3
LIMIT = 400
FRAME = 8

Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(st.sampled_from(["start", "feed", "end", "cancel", "fail", "yield"]), st.integers(0, TURNS - 1), st.integers(0, FRAME)),
    max_size=120,
)


class Play:
    """Turns that a test starts, feeds and ends in any order; `made` is what the engine made for turns that still ran."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.events: dict[int, list[TurnEvent]] = {}
        self.made = 0

    async def step(self, kind: str, turn: int, tokens: int) -> None:
        match kind:
            case "start" if turn not in self.tasks:
                self.events[turn] = []
                request = TurnRequest("", [Message(Role.USER, "hi")], max_output_tokens=300)
                self.tasks[turn] = asyncio.create_task(self.bench.pipeline.run(self.bench.call, request, self.events[turn].extend))
                await asyncio.sleep(0)
            case "cancel" if turn in self.tasks:
                self.tasks[turn].cancel()
            case "yield":
                await asyncio.sleep(0)
            case "feed" | "end" | "fail":
                self._play(kind, turn, tokens)

    def _play(self, kind: str, turn: int, tokens: int) -> None:
        running = self.bench.worker.running_numbers
        if not running:
            return
        number = running[turn % len(running)]
        if kind == "fail":
            self.bench.worker.break_down(worker_lost(), number)
        else:
            self.made += tokens
            self.bench.worker.feed([5] * tokens, WorkerFinish.LENGTH if kind == "end" else WorkerFinish.RUNNING, number=number)

    async def finish(self) -> None:
        """Ends all that runs or waits; what is left to the engine is cancelled."""
        for _ in range(50):
            for task in self.tasks.values():
                task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait(self.tasks.values()) if self.tasks else None


@pytest.fixture(scope="module")
def tokenizer(chatml: Path) -> Tokenizer:
    return Tokenizer.load(chatml)


@settings(max_examples=examples(1.5), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_charges_are_what_the_engine_made(tokenizer: Tokenizer, played: list[Step]) -> None:
    """Every turn has one end and at most one entry; entries sum to the tokens made; quota, money, queue and holds come out even."""

    async def play() -> None:
        bench = Bench(tokenizer)
        bench.slots = SLOTS
        bench.spending.terms.limits = Limits(output_tokens_per_minute=LIMIT, requests_per_minute=100, micros_per_month=10**9)
        bench.spending.terms.price = Price(1_000_000, 2_000_000, 500_000)
        game = Play(bench)
        for step in played:
            await game.step(*step)
            assert bench.spending.used()["output_tokens_per_minute"] <= LIMIT + SLICE_TOKENS
            assert bench.pool.queue.running <= SLOTS
        await game.finish()
        check(game)

    asyncio.run(play())


def check(game: Play) -> None:
    bench, entries = game.bench, game.bench.spending.entries
    for events in game.events.values():
        assert sum(isinstance(event, Finished | Failed) for event in events) == 1
    assert len({entry.turn for entry in entries}) == len(entries)
    assert sum(entry.completion_tokens for entry in entries) == game.made
    used = bench.spending.used()
    assert used["output_tokens_per_minute"] == game.made
    charged = [entry for entry in entries if entry.prompt_tokens]
    assert used["requests_per_minute"] == len(charged)
    assert used["micros_per_month"] == sum(entry.prompt_tokens + 2 * entry.completion_tokens for entry in charged)
    assert (bench.spending.store.holds, bench.pool.queue.running, bench.pool.queue.waiting, bench.spending.book.running) == (0, 0, 0, {})


async def test_a_spent_budget_ends_the_turn_in_the_engine(tokenizer: Tokenizer) -> None:
    """What came with the last frame is delivered, and the worker is told to stop."""
    bench = Bench(tokenizer)
    bench.spending.terms.limits = Limits(output_tokens_per_minute=20)
    async with bench.running():
        for _ in range(10):
            bench.worker.feed([5] * 4) if bench.worker.running_numbers else None
            await asyncio.sleep(0)
    assert bench.events[-1] == Finished(FinishReason.BUDGET)
    assert bench.worker.cancelled == [1]
    (entry,) = bench.spending.entries
    assert (entry.finish, entry.completion_tokens) == ("budget", 20)

"""What the ledger says of turns: one entry for each that reached a worker, whatever end it took."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

from tidegate import Turn
from tidegate.v1.chat_service_pb2 import CompleteRequest
from tidegate.v1.turn_pb2 import TurnSpec

from tests.bench.calls import failure_of
from tests.bench.postgres import outage
from tests.bench.router import Router
from tests.bench.tenants import bearer, entries, make_key, prefix_of, price
from tests.bench.whole import ask, run_bench
from tests.bench.worker import End, Finish, Item, Wait, Worker


async def complete(router: Router, tokens: int = 8, key: str = "") -> str:
    """Runs a turn; its id in the ledger."""
    async with router.stub() as stub:
        spec = TurnSpec(messages=[ask()], max_output_tokens=tokens)
        answer = await stub.Complete(CompleteRequest(spec=spec), metadata=bearer(key) if key else ())
        return str(answer.started.turn_id)


async def test_an_entry_says_who_what_and_how_much(chatml: Path) -> None:
    """By tenant, user, key and model, with tokens, price and end; it is there when the caller hears of the end."""
    async with run_bench(chatml, Worker(chatml, ["hel", "lo"])) as router:
        key = await make_key(router)
        await price(router, "2.50", "0.25", "10")
        turn = await complete(router, 8, key)
        (entry,) = await entries(router, "acme")
        assert (entry.turn, entry.tenant, entry.user, entry.key) == (turn, "acme", "ann", prefix_of(key))
        assert (entry.model_asked, entry.model_served, entry.finish) == ("test", "test", "stop")
        assert entry.completion_tokens == 5
        assert entry.cost == (Decimal("2.50") * entry.prompt_tokens + 10 * 5) / 1_000_000


async def test_a_turn_that_reaches_no_worker_leaves_no_entry(chatml: Path) -> None:
    """Bad input and an absent worker cost nothing."""
    async with run_bench(chatml, Worker(chatml)) as router, router.stub() as stub:
        await failure_of(stub.Complete(CompleteRequest(spec=TurnSpec())))
        assert await entries(router) == []


async def test_every_end_is_told(chatml: Path) -> None:
    """Length, cancellation, a failure after some tokens, and one before any, which costs nothing."""
    scripts: dict[int, list[Item]] = {1: ["a"] * 11, 2: ["a", "b", Wait(1000)], 3: ["a", End(Finish.FAILED)], 4: [End(Finish.FAILED)]}
    async with run_bench(chatml, Worker(chatml, lambda request: scripts[request.max_new_tokens % 10])) as router:
        async with router.client() as client, client.session() as session:
            turns = [await session.start(ask(), max_output_tokens=tokens) for tokens in (11, 12, 13, 14)]
            await asyncio.wait([asyncio.create_task(turn.text()) for turn in (turns[0], *turns[2:])])
            await cancel_after(turns[1], "ab")
        told = {(entry.finish, entry.completion_tokens, entry.prompt_tokens > 0) for entry in await entries(router)}
        assert told == {("length", 11, True), ("cancelled", 2, True), ("ENGINE_FAILED", 1, True), ("ENGINE_FAILED", 0, False)}


async def cancel_after(turn: Turn[str], text: str) -> None:
    """Cancels a turn when this much has come, and waits for its end."""
    got = ""
    async for event in turn:
        got += event.text_delta.text
        if got == text:
            await turn.cancel()


async def test_usage_outlives_an_absent_database(chatml: Path) -> None:
    """While it is away known callers are served and their usage is kept; when it is back everything is in it, once."""
    async with run_bench(chatml, Worker(chatml, ["a"])) as router:
        key = await make_key(router)
        turns = [await complete(router, 8, key)]
        async with outage(router.app.config.store.dsn.get_secret_value()):
            turns += [await complete(router, 8, key) for _ in range(5)]
        assert sorted(entry.turn for entry in await entries(router)) == sorted(turns)

"""What a caller may spend: refusals that say whose limit, budgets that end an answer, and quota that comes back."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import grpc
import pytest
from tidegate import TidegateError
from tidegate.v1.chat_service_pb2 import CompleteRequest, CompleteResponse, StreamRequest
from tidegate.v1.event_pb2 import FINISH_REASON_BUDGET, Allowance
from tidegate.v1.turn_pb2 import TurnSpec

from tests.bench.calls import failure_of
from tests.bench.router import Router
from tests.bench.tenants import bearer, entries, limit, make_key, prefix_of, price
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Wait, Worker

LOCAL = "local"
"""The tenant of callers without a key."""


def spec(tokens: int = 8) -> TurnSpec:
    return TurnSpec(messages=[ask()], max_output_tokens=tokens)


def endless(folder: Path) -> Worker:
    """A worker that answers as long as it is asked to."""
    return Worker(folder, lambda request: ["a"] * request.max_new_tokens)


async def complete(router: Router, tokens: int = 8, key: str = "") -> CompleteResponse:
    async with router.stub() as stub:
        response: CompleteResponse = await stub.Complete(CompleteRequest(spec=spec(tokens)), metadata=bearer(key) if key else ())
        return response


async def test_a_used_up_limit_refuses_with_whose_and_when(chatml: Path) -> None:
    """RESOURCE_EXHAUSTED with QuotaFailure and a time to wait, on single calls; on a stream only the turn fails."""
    async with run_bench(chatml, endless(chatml)) as router, router.stub() as stub, router.client() as client:
        await limit(router, LOCAL, requests_per_minute=1)
        await complete(router)
        for call in (stub.Complete(CompleteRequest(spec=spec())), stub.Stream(StreamRequest(spec=spec()))):
            error = await failure_of(call)
            assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
            assert error.retry_after is not None
            assert 0 < error.retry_after <= 62
        async with client.session() as session:
            turn = await session.start(ask())
            with pytest.raises(TidegateError, match="requests_per_minute of the tenant is used up"):
                await turn.text()


async def test_a_turn_that_never_fits_says_so(chatml: Path) -> None:
    """A prompt beyond the limit's whole size has no time after which it would be taken."""
    async with run_bench(chatml, endless(chatml)) as router, router.stub() as stub:
        await limit(router, LOCAL, input_tokens_per_minute=3)
        error = await failure_of(stub.Complete(CompleteRequest(spec=spec())))
        assert (error.reason, error.retry_after) == ("QUOTA_EXCEEDED", None)


async def test_a_budget_ends_an_answer_where_it_is_spent(chatml: Path) -> None:
    """The tokens until there are delivered, the finish reason is `budget`, and nothing more than the limit is charged."""
    async with run_bench(chatml, endless(chatml)) as router:
        await limit(router, LOCAL, output_tokens_per_minute=100)
        answer = await complete(router, 1000)
        assert answer.finish_reason == FINISH_REASON_BUDGET
        assert answer.usage.completion_tokens == len(answer.text) == 100
        (entry,) = await entries(router)
        assert (entry.finish, entry.completion_tokens) == ("budget", 100)


async def test_a_money_limit_wants_a_price(chatml: Path) -> None:
    """A turn that it holds for is refused while its model has none: the limit would never bind. A price of 0 says that it is free."""
    async with run_bench(chatml, endless(chatml)) as router, router.stub() as stub:
        await limit(router, LOCAL, money_per_month=Decimal(1))
        error = await failure_of(stub.Complete(CompleteRequest(spec=spec())))
        assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "PRICE_MISSING")
        await price(router, "0", "0", "0")
        assert (await complete(router, 2)).text == "aa"


async def test_what_a_turn_did_not_use_comes_back(chatml: Path) -> None:
    """The reservation of a cancelled turn, and of one that was shorter than expected, is free when its end is told."""
    async with run_bench(chatml, Worker(chatml, ["a", Wait(100)])) as router, router.client() as client:
        await limit(router, LOCAL, output_tokens_per_minute=1000, concurrent_turns=1)
        for _ in range(5):
            async with client.session() as session:
                turn = await session.start(ask(), max_output_tokens=900)
                await until(lambda: router.turns_in_lanes() == 1)
                await turn.cancel()
                assert await turn.text() in ("", "a")
        assert sum(entry.completion_tokens for entry in await entries(router)) <= 5


async def test_limits_and_what_is_left_are_told(chatml: Path) -> None:
    """With `started`, for each limit that the turn comes under: tenant, user, key and model at once."""
    async with run_bench(chatml, endless(chatml)) as router:
        key = await make_key(router)
        await limit(router, "acme", requests_per_minute=5)
        await limit(router, "acme", user="ann", tokens_per_day=10_000)
        await limit(router, "acme", key=prefix_of(key), concurrent_turns=3)
        await limit(router, "acme", model="test", output_tokens_per_minute=100)
        started = (await complete(router, 10, key)).started
        assert len(started.turn_id) == 32
        told = {it.subject: it for it in started.allowances}
        assert told["tenant"] == Allowance(subject="tenant", name="requests_per_minute", limit=5, remaining=4)
        assert told["user"].remaining == 10_000 - started.prompt_tokens - 10
        assert told["key"] == Allowance(subject="key", name="concurrent_turns", limit=3, remaining=2)
        assert told["model"] == Allowance(subject="model", name="output_tokens_per_minute", limit=100, remaining=90)


async def test_another_tenants_limits_are_not_mine(chatml: Path) -> None:
    """One tenant at its limit leaves the other's turns alone."""
    async with run_bench(chatml, endless(chatml)) as router:
        ann, bob = await make_key(router, "acme", "ann"), await make_key(router, "globex", "bob")
        await limit(router, "acme", requests_per_minute=0)
        assert (await complete(router, 2, bob)).text == "aa"
        async with router.stub() as stub:
            assert (await failure_of(stub.Complete(CompleteRequest(spec=spec()), metadata=bearer(ann)))).reason == "QUOTA_EXCEEDED"

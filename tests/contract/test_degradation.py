"""Which model answers: aliases, smaller models that answer for busy ones, and what callers, keys, quotas and the ledger see of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import grpc
from tidegate.errors import from_rpc_error
from tidegate.v1.chat_service_pb2 import CompleteRequest, CompleteResponse, CountTokensRequest
from tidegate.v1.event_pb2 import Degraded
from tidegate.v1.turn_pb2 import PRIORITY_BATCH, TurnSpec

from router.store.identity import IdentityStore
from tests.bench.calls import failure_of
from tests.bench.http import chat, connect
from tests.bench.router import Router
from tests.bench.tenants import bearer, entries, limit, make_key, price
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Worker

LADDER = {"smaller": "small", "slo_ttft_s": 0.5}
AUTO = [{"name": "auto", "models": ["small", "test"]}]


def large(folder: Path, **options: Any) -> Worker:
    """Runs one turn at once; says `L` as often as it is asked to."""
    return Worker(folder, lambda request: ["L"] * request.max_new_tokens, **{"max_sequences": 1, **options})


def small(folder: Path, **options: Any) -> Worker:
    """Says `s`."""
    return Worker(folder, lambda request: ["s"] * request.max_new_tokens, **options)


@asynccontextmanager
async def busy(router: Router) -> AsyncIterator[None]:
    """The large model's one slot is taken, as long as the block lasts; of that turn nobody hears."""
    async with router.client() as client, client.session(headers=dict(bearer(await make_key(router, "blocker", "b")))) as session:
        turn = await session.start(ask("block"), max_output_tokens=1900)
        await until(lambda: router.app.pools["test"].queue.running == 1)
        yield
        await turn.cancel()
        async for _ in turn:
            pass


async def complete(router: Router, key: str = "", **spec: Any) -> CompleteResponse:
    async with router.stub() as stub:
        request = CompleteRequest(spec=TurnSpec(**{"messages": [ask()], "max_output_tokens": 3, **spec}))
        response: CompleteResponse = await stub.Complete(request, metadata=bearer(key) if key else ())
        return response


async def forbid(router: Router, tenant: str) -> None:
    """No downgrades for this tenant, from now on."""
    await IdentityStore(router.app.store.database).put_tenant(tenant, no_downgrade=True)
    await router.app.terms.refresh()


async def test_a_busy_model_is_answered_for_and_the_caller_is_told(chatml: Path) -> None:
    """With an event before `started`; the ledger has both names and the price is that of the model that served."""
    async with run_bench(chatml, large(chatml), small=[small(chatml)], model=LADDER) as router:
        await price(router, "9", "9", "9")
        await price(router, "0", "0", "1", model="small")
        async with busy(router), router.client() as client, client.session() as session:
            turn = await session.start(ask(), max_output_tokens=3)
            told = [event async for event in turn]
        kinds = dict.fromkeys(str(event.WhichOneof("event")) for event in told)
        assert list(kinds) == ["degraded", "started", "text_delta", "usage", "finished"]
        assert told[0].degraded == Degraded(from_model="test", to_model="small", reason="SATURATED")
        assert told[1].started.model == "small"
        assert (await turn.text(), turn.degraded) == ("sss", told[0].degraded)
        (entry,) = await entries(router, "local")
        assert (entry.model_asked, entry.model_served, entry.cost) == ("test", "small", Decimal(3) / 1_000_000)
        labels = {"model": "test", "to_model": "small", "reason": "SATURATED"}
        assert router.app.registry.get_sample_value("tidegate_downgraded_turns_total", labels) == 1
        assert router.app.registry.get_sample_value("tidegate_downgrading", {"model": "test"}) == 1


async def test_a_whole_answer_tells_it_too(chatml: Path) -> None:
    """A response in one message says which model stood in, and one of the model asked for says nothing."""
    async with run_bench(chatml, large(chatml), small=[small(chatml)], model=LADDER) as router:
        assert not (await complete(router)).HasField("degraded")
        async with busy(router):
            answer = await complete(router)
        assert (answer.text, answer.degraded.to_model, answer.started.model) == ("sss", "small", "small")


async def test_over_http_a_header_tells_it(chatml: Path) -> None:
    """On whole and streamed answers, whose `model` is the one that served; and an alias is among the models that may be asked for."""
    async with (
        run_bench(chatml, large(chatml), small=[small(chatml)], model=LADDER, aliases=AUTO) as router,
        connect(router.http) as caller,
    ):
        assert "x-tidegate-degraded" not in (await caller.ask(value=chat("hi", max_tokens=2))).headers
        async with busy(router):
            answers = [await caller.ask(value=chat("hi", max_tokens=2, stream=stream)) for stream in (False, True)]
        assert [it.headers["x-tidegate-degraded"] for it in answers] == ["SATURATED; from=test; to=small"] * 2
        assert answers[0].json["model"] == "small"
        assert [it["id"] for it in (await caller.ask("/v1/models")).json["data"]] == ["test", "small", "auto"]
        assert (await caller.ask("/v1/models/auto")).json["id"] == "auto"


async def test_a_model_without_a_worker_is_answered_for(chatml: Path) -> None:
    """Without any SLO too; the reason is what the caller would have got."""
    worker = large(chatml)
    async with run_bench(chatml, worker, small=[small(chatml)], model={"smaller": "small"}) as router:
        await worker.stop()
        await until(lambda: not router.app.pools["test"].fleet.is_served)
        answer = await complete(router)
        assert (answer.text, answer.degraded.reason) == ("sss", "NO_WORKER")


async def test_a_tenant_that_forbids_downgrades_waits_or_is_refused(chatml: Path) -> None:
    """In view of all while the model is busy, with a time to come again while it is down; other tenants' turns go down."""
    worker = large(chatml)
    async with run_bench(chatml, worker, small=[small(chatml)], model=LADDER) as router:
        key, other = await make_key(router), await make_key(router, "globex")
        await forbid(router, "acme")
        async with router.client() as client, client.session(headers=dict(bearer(key))) as session:
            async with busy(router):
                turn = await session.start(ask(), max_output_tokens=3)
                await until(lambda: router.app.pools["test"].queue.waiting == 1)
                assert (await complete(router, other)).degraded.to_model == "small"
            told = [str(event.WhichOneof("event")) async for event in turn]
        assert "queued" in told
        assert "degraded" not in told
        assert await turn.text() == "LLL"
        await worker.stop()
        await until(lambda: not router.app.pools["test"].fleet.is_served)
        async with router.stub() as stub:
            error = await failure_of(stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask()])), metadata=bearer(key)))
        assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "NO_WORKER")
        assert error.retry_after


async def test_who_may_not_or_would_not_go_down_waits(chatml: Path) -> None:
    """A key that is not for the smaller model, a batch turn, and a prompt that the smaller model's cache cannot hold."""
    tiny = small(chatml, kv_blocks=4)
    async with run_bench(chatml, large(chatml), small=[tiny], model=LADDER) as router:
        bound, free = await make_key(router, models=["test"]), await make_key(router, user="bob")
        long = ask("x" * 32 * 4)
        async with busy(router):
            turns = [
                asyncio.create_task(complete(router, bound)),
                asyncio.create_task(complete(router, free, priority=PRIORITY_BATCH)),
                asyncio.create_task(complete(router, free, messages=[long])),
            ]
            await until(lambda: router.app.pools["test"].queue.waiting == len(turns))
        assert [(answer.text, answer.HasField("degraded")) for answer in await asyncio.gather(*turns)] == [("LLL", False)] * len(turns)
        assert tiny.calls == 0


async def test_the_quota_is_that_of_the_model_that_serves(chatml: Path) -> None:
    """A limit on the smaller model holds for turns that come down to it."""
    async with run_bench(chatml, large(chatml), small=[small(chatml)], model=LADDER) as router:
        key = await make_key(router)
        await limit(router, "acme", model="small", requests_per_minute=0)
        assert (await complete(router, key)).text == "LLL"
        async with busy(router), router.stub() as stub:
            error = await failure_of(stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask()])), metadata=bearer(key)))
        assert error.reason == "QUOTA_EXCEEDED"


async def test_an_alias_sends_easy_requests_to_the_small_model_and_hard_ones_to_the_flagship(chatml: Path) -> None:
    """Nothing is degraded by that; the ledger has the alias as the name that was asked for."""
    async with run_bench(chatml, large(chatml), small=[small(chatml)], aliases=AUTO) as router:
        easy, hard = await complete(router, model="auto"), await complete(router, model="auto", messages=[ask("Solve 3 + 4 = x.")])
        assert [(answer.text, answer.HasField("degraded")) for answer in (easy, hard)] == [("sss", False), ("LLL", False)]
        assert [(it.model_asked, it.model_served) for it in await entries(router)] == [("auto", "small"), ("auto", "test")]
        async with router.stub() as stub:
            assert (await stub.CountTokens(CountTokensRequest(model="auto", messages=[ask()]))).prompt_tokens == easy.started.prompt_tokens
        async with router.client() as client, client.session(model="auto") as session:
            assert await (await session.start(ask(), max_output_tokens=2)).text() == "ss"


async def test_an_alias_escalates_before_anything_is_said(chatml: Path) -> None:
    """When the small model is down or its queue is full, and for a key that is not for it."""
    worker = small(chatml, max_sequences=1)
    async with run_bench(chatml, large(chatml, max_sequences=8), small=[worker], aliases=AUTO, queue={"length": 1}) as router:
        bound = await make_key(router, models=["test"])
        assert (await complete(router, bound, model="auto")).text == "LLL"
        queue = router.app.pools["small"].queue
        fillers = []
        for filled in (lambda: queue.running == 1, lambda: queue.waiting == 1):
            fillers.append(asyncio.create_task(complete(router, model="small", max_output_tokens=300)))
            await until(filled)
        assert (await complete(router, model="auto")).text == "LLL"
        assert [(await filler).text for filler in fillers] == ["s" * 300] * 2
        await worker.stop()
        await until(lambda: not router.app.pools["small"].fleet.is_served)
        answer = await complete(router, model="auto")
        assert (answer.text, answer.HasField("degraded")) == ("LLL", False)


async def test_a_load_step_leaves_nobody_without_an_answer_or_a_time(chatml: Path) -> None:
    """Far more turns at once than both pools hold: each is answered by the model asked for, or by the smaller one and labelled, or refused
    with a time to come again."""
    workers = large(chatml, max_sequences=4), small(chatml, max_sequences=4)
    queue = {"length": 8, "tenant_share": 1.0}
    async with run_bench(chatml, workers[0], small=[workers[1]], model={**LADDER, "slo_ttft_s": 2.0}, queue=queue) as router:
        async with router.stub() as stub:
            request = CompleteRequest(spec=TurnSpec(messages=[ask()], max_output_tokens=100))
            outcomes = await asyncio.gather(*(outcome_of(stub.Complete(request)) for _ in range(64)))
        counted = Counter(outcomes)
        assert counted.keys() == {"test", "small for test", "refused with a time"}
        assert min(counted["test"], counted["small for test"]) >= 4


async def outcome_of(call: Any) -> str:
    """How a turn ended: who answered, and for whom; or how it was refused."""
    try:
        answer: CompleteResponse = await call
    except grpc.aio.AioRpcError as failed:
        error = from_rpc_error(failed)
        return "refused with a time" if error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and error.retry_after else error.reason
    assert (answer.started.model == "small") == answer.HasField("degraded")
    return f"small for {answer.degraded.from_model}" if answer.HasField("degraded") else answer.started.model

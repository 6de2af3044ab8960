"""Two real models, a small one and a flagship, each behind a Triton of its own: who answers what, and who answers for whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tidegate import Turn, user

from server.assets.catalogue import DEFAULT_MODEL
from server.assets.store import resolve
from server.stack import StackOptions, run_stack
from tests.bench.router import Router, run_router
from tests.bench.waiting import until

pytestmark = pytest.mark.slow

FLAGSHIP = "qwen2.5-coder-0.5b"


@asynccontextmanager
async def pair() -> AsyncIterator[Router]:
    """A router with both models, of which the flagship runs one turn at once and should not make anybody wait, and the alias `auto`."""
    folders = [await asyncio.to_thread(resolve, name) for name in (DEFAULT_MODEL, FLAGSHIP)]
    async with run_stack(StackOptions()) as small, run_stack(StackOptions(FLAGSHIP, engine={"max_num_seqs": "1"})) as flagship:
        models: list[dict[str, Any]] = [
            {"name": folder.name, "path": str(folder), "workers": [stack.worker], "shared_prefixes": True}
            for folder, stack in zip(folders, (small, flagship), strict=True)
        ]
        models[1] |= {"smaller": models[0]["name"], "slo_ttft_s": 0.1}
        aliases = [{"name": "auto", "models": [model["name"] for model in models]}]
        async with run_router(folders[0], small.worker, flagship.worker, models=models, aliases=aliases) as router:
            yield router


async def answer(router: Router, question: str, model: str, tokens: int = 24) -> tuple[str, Turn[str]]:
    """The greedy answer, and its turn."""
    async with router.client() as client, client.session(model=model) as session:
        turn = await session.start(user(question), max_output_tokens=tokens)
        return await turn.text(), turn


def server_of(turn: Turn[str]) -> str:
    assert turn.started is not None
    return turn.started.model


@pytest.mark.timeout(600)
async def test_each_model_does_what_it_can() -> None:
    """Plain facts come from the small model and sums from the flagship, which is right; while that is busy the small one answers for it,
    in its own words and tokens, and says so."""
    async with pair() as router:
        fact, told = await answer(router, "What is the capital of France?", "auto")
        assert (server_of(told), "Paris" in fact) == (DEFAULT_MODEL, True)
        total, told = await answer(router, "What is 17 + 25?", "auto")
        assert (server_of(told), "42" in total) == (FLAGSHIP, True)
        busy = asyncio.create_task(answer(router, "Write a very long story.", FLAGSHIP, 200))
        await until(lambda: router.app.pools[FLAGSHIP].queue.running == 1)
        fact, told = await answer(router, "What is the capital of France?", FLAGSHIP)
        assert told.degraded is not None
        assert (told.degraded.from_model, told.degraded.to_model, told.degraded.reason) == (FLAGSHIP, DEFAULT_MODEL, "SATURATED")
        assert (server_of(told), "Paris" in fact) == (DEFAULT_MODEL, True)
        _, told = await busy
        assert (server_of(told), told.degraded) == (FLAGSHIP, None)
        _, told = await answer(router, "What is the capital of France?", FLAGSHIP)
        assert (server_of(told), told.degraded) == (FLAGSHIP, None)

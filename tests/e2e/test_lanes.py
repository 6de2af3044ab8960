"""Lanes over the real Triton: several routers on one worker, a stalled one, and the same tokens whichever way they travel."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tidegate import Client, Turn, user

from router.text.tokenizer import Tokenizer
from server.engine.base import Request
from server.engine.openvino import OpenVinoEngine
from server.engine.scripted import Emit, count_up
from server.launch import Triton
from server.stack import Stack
from tests.e2e.asking import resident_kib
from tests.e2e.direct import generate_directly
from tests.e2e.scripted import run_scripted

TOKENS = 12
THINGS = """
rain snow bread chess gold ships bees tea salt glass iron maps owls silk jazz clay wool figs opal reeds moss kites drums lamps coins
ropes tides caves dunes geese plums tents wells yaks zebras actors barns canals dates elms ferns goats hills inns jams knots lakes mills
nuts oaks
"""
PROMPTS = [f"Tell me about {thing}." for thing in THINGS.split()]


@pytest.mark.parametrize("stalled_s", [1, pytest.param(20, marks=pytest.mark.slow)])
async def test_a_stalled_router_costs_little_and_slows_nobody(folder: Path, tmp_path: Path, stalled_s: int) -> None:
    """A router under SIGSTOP with 64 turns: Triton's memory hardly grows, another router's tokens keep their pace, and after SIGCONT every
    token of the stalled turns arrives once and in order."""
    engine = {"step_us": "5000", "max_num_seqs": "256", "kv_blocks": "100000"}
    async with run_scripted(tmp_path, folder, **engine) as worker, AsyncExitStack() as routers:
        stalled, other = await asyncio.gather(*(routers.enter_async_context(worker.router()) for _ in range(2)))
        async with Client(stalled.target) as first, first.session() as its, Client(other.target) as second, second.session() as theirs:
            turns = [await its.start(user("go"), max_output_tokens=150 * stalled_s) for _ in range(64)]
            paced = 200 * (stalled_s + 2)
            pacer = await theirs.start(user("go"), max_output_tokens=paced)
            count = _Counter(pacer)
            await asyncio.sleep(1.0)
            before, started = worker_memory(worker.triton), count.tokens
            stalled.send(signal.SIGSTOP)
            await asyncio.sleep(stalled_s)
            grown, during = worker_memory(worker.triton) - before, count.tokens - started
            stalled.send(signal.SIGCONT)
            texts = await asyncio.gather(*(turn.text() for turn in turns))
            assert await count.settle(pacer) == paced
    assert grown < 20 * 1024
    assert during / stalled_s > started / 1.0 / 2
    ids = [token for action in count_up(Request(0, [1], 150 * stalled_s)) if isinstance(action, Emit) for token in action.tokens]
    assert set(texts) == {Tokenizer.load(folder).decoder().feed(ids)}


@pytest.mark.parametrize("prompts", [4, pytest.param(50, marks=pytest.mark.slow)])
async def test_a_lane_brings_the_tokens_of_the_bare_engine(stack: Stack, folder: Path, engine: OpenVinoEngine, prompts: int) -> None:
    """Greedy: through a lane, straight from Triton and from the bare engine the answers are equal, one and 16 at a time."""
    tokenizer = Tokenizer.load(folder)
    ids = [tokenizer.encode_chat([{"role": "user", "content": prompt}]) for prompt in PROMPTS[:prompts]]
    bare = [await asyncio.to_thread(_run_alone, engine, Request(number, prompt, TOKENS)) for number, prompt in enumerate(ids, start=1)]
    texts = [tokenizer.decoder().feed(tokens) for tokens in bare]
    for at_once in (1, 16):
        assert await _in_groups(at_once, [_ask(stack.router, prompt) for prompt in PROMPTS[:prompts]]) == texts
        assert await _in_groups(at_once, [generate_directly(stack.worker, prompt, TOKENS) for prompt in ids]) == bare


def worker_memory(triton: Triton) -> int:
    """Resident KiB of tritonserver and its Python stub."""
    group = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal() and _group_of(path) == triton.pid]
    return sum(resident_kib(pid) for pid in group)


class _Counter:
    """Counts a turn's tokens while they arrive; the scripted engine's are one character each."""

    def __init__(self, turn: Turn[str]) -> None:
        self.tokens = 0
        self._task = asyncio.create_task(self._count(turn))

    async def settle(self, turn: Turn[str]) -> int:
        """All tokens, at the turn's end."""
        await self._task
        return self.tokens

    async def _count(self, turn: Turn[str]) -> None:
        async for event in turn:
            self.tokens += len(event.text_delta.text)


def _group_of(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[2])
    except OSError:
        return 0


def _run_alone(engine: OpenVinoEngine, request: Request) -> list[int]:
    engine.submit(request)
    tokens: list[int] = []
    while engine.has_work():
        tokens += [token for output in engine.step() for token in output.tokens]
    return tokens


async def _ask(target: str, prompt: str) -> str:
    async with Client(target) as client, client.session() as session:
        return await (await session.start(user(prompt), max_output_tokens=TOKENS)).text()


async def _in_groups(size: int, calls: list) -> list:  # type: ignore[type-arg]
    results = []
    for start in range(0, len(calls), size):
        results += await asyncio.gather(*calls[start : start + size])
    return results

"""Two real Tritons with the real model behind one router: one is killed or frozen under load, and no caller hears of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise

import pytest
from tidegate import Client, Session, TidegateError, user
from tidegate.v1.turn_pb2 import ResponseFormat

from server.assets.catalogue import DEFAULT_MODEL
from server.assets.store import resolve
from server.launch import Triton
from server.stack import StackOptions, run_stack
from server.triton_options import TritonOptions
from tests.bench.proxy import Proxy
from tests.bench.router import Router, run_router

pytestmark = pytest.mark.slow

TURNS = 32
TOKENS = 48
QUESTIONS = [f"Tell me a short story about the number {number}." for number in range(TURNS)]


@dataclass(frozen=True, slots=True)
class Pair:
    """A router in front of two Tritons."""

    router: Router
    tritons: Sequence[Triton]


@asynccontextmanager
async def cut_off() -> AsyncIterator[tuple[Router, dict[str, Proxy]]]:
    """A router in front of two Tritons, and by address the wires to them, which can be cut."""
    folder = await asyncio.to_thread(resolve, DEFAULT_MODEL)
    async with run_stack(StackOptions(profile="deterministic")) as stack, AsyncExitStack() as exits:
        assert stack.triton is not None
        second = await exits.enter_async_context(await Triton.start(TritonOptions(stack.repository)))
        proxies = [Proxy(triton.endpoints.grpc) for triton in (stack.triton, second)]
        for proxy in proxies:
            await exits.enter_async_context(proxy.running())
        router = await exits.enter_async_context(run_router(folder, *(proxy.address for proxy in proxies)))
        yield router, {proxy.address: proxy for proxy in proxies}


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    """In the engine's deterministic profile, with a lane given up after two seconds of silence."""
    folder = await asyncio.to_thread(resolve, DEFAULT_MODEL)
    async with run_stack(StackOptions(profile="deterministic")) as stack:
        assert stack.triton is not None
        async with await Triton.start(TritonOptions(stack.repository)) as second:
            addresses = (stack.triton.endpoints.grpc, second.endpoints.grpc)
            timeouts = {"worker_silence_s": 2.0}
            async with run_router(folder, *addresses, timeouts=timeouts, routing={"policy": "round_robin"}) as router:
                yield Pair(router, (stack.triton, second))


@dataclass(slots=True)
class Answers:
    """What all callers got: texts in the order of the questions, and the longest pause between two deltas of an answer, in seconds."""

    texts: list[str]
    longest_pause_s: float


async def ask_all(router: Router) -> Answers:
    """Every question at once; a turn that fails fails the test."""
    async with router.client() as client:
        answers = await asyncio.gather(*(ask(client, question) for question in QUESTIONS))
    return Answers([text for text, _ in answers], max(pause for _, pause in answers))


async def ask(client: Client, question: str) -> tuple[str, float]:
    async with client.session() as session:
        turn, text, at = await session.start(user(question), max_output_tokens=TOKENS), "", []
        async for event in turn:
            if event.HasField("text_delta"):
                text += event.text_delta.text
                at.append(time.monotonic())
    return text, max((later - earlier for earlier, later in pairwise(at)), default=0.0)


async def disturb(triton: Triton, number: signal.Signals) -> None:
    """Sends a signal to all of a Triton's processes, once answers are under way."""
    await asyncio.sleep(1.5)
    os.killpg(os.getpgid(triton.pid), number)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_no_caller_hears_of_a_worker_that_is_lost(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    """kill -9, or a hang: of 32 turns none fails, and every text is byte for byte that of an undisturbed run."""
    async with pair() as two:
        undisturbed = await ask_all(two.router)
        answers, _ = await asyncio.gather(ask_all(two.router), disturb(two.tritons[1], number))
        with capsys.disabled():
            print(f"\n{number.name}: longest pause {answers.longest_pause_s:.2f} s, undisturbed {undisturbed.longest_pause_s:.2f} s")
        assert answers.texts == undisturbed.texts
        assert two.router.app.registry.get_sample_value("tidegate_moved_turns_total", {"model": "test", "reason": "WORKER_LOST"})
        if number is signal.SIGSTOP:
            os.killpg(os.getpgid(two.tritons[1].pid), signal.SIGCONT)


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 40}, "age": {"type": "integer"}, "city": {"type": "string", "maxLength": 40}},
    "required": ["name", "age", "city"],
    "additionalProperties": False,
}


@pytest.mark.timeout(600)
async def test_a_json_answer_holds_at_whichever_token_its_worker_is_lost() -> None:
    """The wire to the worker is cut at each token in turn: the answer is valid and that of an undisturbed run, or it fails cleanly."""
    async with cut_off() as (router, proxies), router.client() as client, client.session() as session:
        whole, tokens = await describe_person(session, proxies, 0)
        assert set(json.loads(whole)) == {"name", "age", "city"}
        outcomes = Counter([(await describe_person(session, proxies, at))[0] for at in range(1, tokens)])
        assert set(outcomes) <= {whole, ""}
        assert outcomes[whole] > tokens * 0.9


async def describe_person(session: Session, proxies: dict[str, Proxy], cut_at: int) -> tuple[str, int]:
    """A JSON answer, and its tokens; the wire is cut after so many deltas. Empty when the turn failed."""
    form, text, deltas = ResponseFormat(json_schema=json.dumps(SCHEMA)), "", 0
    turn = await session.start(user("Describe a person as JSON."), max_output_tokens=120, response_format=form)
    try:
        async for event in turn:
            text += event.text_delta.text
            deltas += event.HasField("text_delta")
            if deltas == cut_at and event.HasField("text_delta") and turn.started:
                proxies[turn.started.worker].cut()
    except TidegateError:
        return "", 0
    return text, turn.usage.completion_tokens if turn.usage else 0

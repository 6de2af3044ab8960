"""A real model answers over the real path."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from tidegate import Client, user
from tidegate.v1.event_pb2 import FINISH_REASON_CANCELLED, FINISH_REASON_LENGTH, FINISH_REASON_STOP
from tidegate.v1.turn_pb2 import Sampling

from server.stack import Stack
from tests.e2e.asking import answer, read_metrics
from tests.e2e.direct import stream_directly

QUESTIONS = [
    f"Name {count} {things}."
    for count in ("two", "three", "four", "five")
    for things in (
        "colours",
        "animals",
        "fruits",
        "countries",
        "rivers",
        "trees",
        "planets",
        "metals",
        "cities",
        "sports",
        "birds",
        "tools",
        "drinks",
        "languages",
        "numbers",
        "oceans",
    )
]


async def test_the_model_knows_the_capital_of_france(stack: Stack) -> None:
    """The greedy answer holds the right word and ends by itself."""
    async with Client(stack.router) as client, client.session() as session:
        turn = await session.start(user("What is the capital of France?"), max_output_tokens=64)
        assert "Paris" in await turn.text()
    assert turn.finish_reason == FINISH_REASON_STOP


async def test_openais_client_gets_the_same_answer(stack: Stack) -> None:
    """Streamed and whole over HTTP, and from another prompt form: a text that is continued without a chat template."""
    question = "What is the capital of France?"
    anonymous: Any = {"model": "", "temperature": 0, "extra_headers": {"Authorization": openai.Omit()}}
    async with openai.AsyncOpenAI(base_url=f"http://{stack.http}/v1", api_key="none", max_retries=0) as client:
        asked: Any = anonymous | {"messages": [{"role": "user", "content": question}], "max_tokens": 24}
        stream = await client.chat.completions.create(**asked, stream=True)
        streamed = "".join([choice.delta.content or "" async for chunk in stream for choice in chunk.choices])
        whole = await client.chat.completions.create(**asked)
        plain = await client.completions.create(**anonymous, prompt="The capital of France is", max_tokens=8)
    assert streamed == whole.choices[0].message.content == await answer(stack.router, question)
    assert "Paris" in plain.choices[0].text


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
async def test_sixty_four_turns_answer_as_each_alone(stack: Stack, every: int) -> None:
    """64 turns at once from 4 clients all finish, and each greedy text, or one in eight, equals that of the same prompt run alone."""
    together = await asyncio.gather(*(_ask_all(stack.router, QUESTIONS[part::4]) for part in range(4)))
    texts = {question: text for part, answers in enumerate(together) for question, text in zip(QUESTIONS[part::4], answers, strict=True)}
    assert len(texts) == 64
    for question in QUESTIONS[::every]:
        assert await answer(stack.router, question, max_tokens=8) == texts[question]


async def test_max_tokens_ends_a_turn_by_length(stack: Stack) -> None:
    """Exactly as many tokens as allowed are counted, and the turn says why it ended."""
    async with Client(stack.router) as client, client.session() as session:
        turn = await session.start(user("Count from one to one hundred."), max_output_tokens=7)
        await turn.text()
    assert turn.finish_reason == FINISH_REASON_LENGTH
    assert turn.usage is not None
    assert turn.usage.completion_tokens == 7


async def test_a_stop_text_ends_the_answer_and_is_not_shown(stack: Stack) -> None:
    """The stop text ends the turn wherever it falls between tokens."""
    async with Client(stack.router) as client, client.session() as session:
        turn = await session.start(user("What is the capital of France?"), max_output_tokens=64, stop=["ance is"])
        assert await turn.text() == "The capital of Fr"
    assert turn.finish_reason == FINISH_REASON_STOP


async def test_the_same_seed_gives_the_same_sampled_answer(stack: Stack) -> None:
    """Sampling is repeatable with a seed and varies with another."""
    texts = [await _sample(stack.router, seed) for seed in (7, 7, 8)]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


async def test_a_cancelled_turn_frees_its_kv_blocks(stack: Stack) -> None:
    """After a cancel the worker's own load report says that all KV blocks are free and nothing is active."""
    async with Client(stack.router) as client, client.session() as session:
        turn = await session.start(user("Write a very long story."), max_output_tokens=2000)
        async for event in turn:
            if event.HasField("text_delta"):
                await turn.cancel()
        assert turn.finish_reason == FINISH_REASON_CANCELLED
        following = await session.start(user("Say yes."), max_output_tokens=4)
        await following.text()
    samples = await asyncio.to_thread(read_metrics, stack.metrics)
    load = {labels["figure"]: value for name, labels, value in samples if name == "tidegate_worker_load"}
    assert load["active"] == load["queued"] == 0
    assert load["free_blocks"] == load["total_blocks"] > 0


async def test_a_triton_client_without_a_lane_gets_the_stock_answer(stack: Stack) -> None:
    """tritonclient's own streaming, knowing nothing of lanes, gets token ids and at the end a finish reason."""
    ids: list[int] = []
    reasons: list[bytes] = []
    async for result in stream_directly(stack.worker, [1, 4093, 198, 1780, 314], 6):
        ids += result.as_numpy("output_ids").tolist()
        reasons += [] if (reason := result.as_numpy("finish_reason")) is None else reason.tolist()
    assert len(ids) == 6
    assert reasons == [b"length"]


async def _ask_all(target: str, questions: list[str]) -> list[str]:
    async with Client(target) as client, client.session() as session:
        turns = [await session.start(user(question), max_output_tokens=8) for question in questions]
        return list(await asyncio.gather(*(turn.text() for turn in turns)))


async def _sample(target: str, seed: int) -> str:
    async with Client(target) as client, client.session(sampling=Sampling(temperature=1.0, seed=seed)) as session:
        return await (await session.start(user("Write a poem."), max_output_tokens=24)).text()

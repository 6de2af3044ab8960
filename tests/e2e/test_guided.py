"""Guided decoding and poison, over the whole path: what conforms, what is refused, and that nobody else notices."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from tidegate import Client, Session, TidegateError, user
from tidegate.v1.turn_pb2 import JsonObject, ResponseFormat, Sampling
from tritonclient.grpc import InferInput
from tritonclient.grpc.aio import InferenceServerClient

from server.stack import Stack

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer"},
        "married": {"type": "boolean"},
        "pets": {"type": "array", "items": {"enum": ["cat", "dog", "fish"]}, "maxItems": 3},
    },
    "required": ["name", "age", "married", "pets"],
    "additionalProperties": False,
}
QUESTION = "Describe a person as JSON."


async def test_twenty_of_twenty_hot_answers_conform_to_the_schema(stack: Stack) -> None:
    """At temperature 1.2 every answer is whole JSON of the schema's shape, and none runs out in blanks."""
    wanted = ResponseFormat(json_schema=json.dumps(SCHEMA))
    async with Client(stack.router) as client, client.session() as session:
        answers = await asyncio.gather(*(_ask(session, wanted, seed) for seed in range(20)))
    for text in answers:
        person = json.loads(text)
        assert list(person) == ["name", "age", "married", "pets"]
        assert isinstance(person["name"], str)
        assert isinstance(person["age"], int)
        assert isinstance(person["married"], bool)
        assert set(person["pets"]) <= {"cat", "dog", "fish"}


async def test_regex_and_grammar_bind_the_answer(stack: Stack) -> None:
    """The answer matches the expression, or is one of the grammar's sentences."""
    async with Client(stack.router) as client, client.session() as session:
        assert re.fullmatch(r"[A-Z]{3}-[0-9]{4}", await _ask(session, ResponseFormat(regex=r"[A-Z]{3}-[0-9]{4}"), 1))
        assert await _ask(session, ResponseFormat(grammar='root ::= "yes" | "no"'), 2) in ("yes", "no")
        assert isinstance(json.loads(await _ask(session, ResponseFormat(json_object=JsonObject()), 3, most=400)), dict)


async def test_log_probabilities_come_with_the_tokens(stack: Stack) -> None:
    """One entry for each token; joined their bytes are the answer."""
    async with Client(stack.router) as client, client.session() as session:
        turn = await session.start(user("What is the capital of France?"), max_output_tokens=20, logprobs=True)
        events = [event async for event in turn]
    tokens = [token for event in events for token in event.logprobs.tokens]
    assert turn.usage is not None
    assert len(tokens) == turn.usage.completion_tokens
    assert b"".join(token.token_bytes for token in tokens).decode() == "".join(event.text_delta.text for event in events)
    assert all(token.logprob <= 0 for token in tokens)


@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.slow)])
async def test_poison_among_good_requests_harms_nobody(stack: Stack, count: int) -> None:
    """Every good turn finishes as it would alone, and every poisonous request gets a reason."""
    async with Client(stack.router) as client, client.session() as session, InferenceServerClient(stack.worker) as triton:
        alone = await (await session.start(user("Name three colours."), max_output_tokens=16)).text()
        good = [asyncio.create_task(_good(session)) for _ in range(12)]
        draw = random.Random(count)
        reasons = []
        for _ in range(count // 10):
            reasons += await asyncio.gather(*(_poison(session, triton, draw) for _ in range(10)))
        assert await asyncio.gather(*good) == [alone] * 12
        assert await (await session.start(user("Name three colours."), max_output_tokens=16)).text() == alone
    assert len(reasons) == count
    assert all(reasons)


GUIDES = [
    ResponseFormat(json_schema='{"type": "nonsense"}'),
    ResponseFormat(json_schema="{"),
    ResponseFormat(json_schema='{"$ref": "#/definitions/missing"}'),
    ResponseFormat(json_schema='{"type": "array", "items": ' * 500),
    ResponseFormat(regex="("),
    ResponseFormat(regex="(?=a)b"),
    ResponseFormat(regex="(a{1000}){1000}"),
    ResponseFormat(grammar="root ::= missing"),
    ResponseFormat(grammar='root ::= root "a"'),
    ResponseFormat(grammar="not a grammar"),
]
TENSORS: list[dict[str, tuple[str, list[Any]]]] = [
    {"input_ids": ("INT32", [-1])},
    {"input_ids": ("INT32", [10**6])},
    {"input_ids": ("INT32", [5]), "request_output_len": ("INT32", [0])},
    {"input_ids": ("INT32", [5]), "request_output_len": ("INT32", [10**6])},
    {"input_ids": ("INT32", [5]), "runtime_top_p": ("FP32", [0.0]), "temperature": ("FP32", [1.0])},
    {"input_ids": ("INT32", [5]), "temperature": ("FP32", [float("nan")])},
    {"input_ids": ("INT32", [5]), "end_id": ("INT32", [-5])},
    {"input_ids": ("INT32", [5]), "repetition_penalty": ("FP32", [-1.0])},
    {"request_output_len": ("INT32", [5])},
]


async def _poison(session: Session, triton: InferenceServerClient, draw: random.Random) -> str:
    """Sends one poisonous request through the router or straight to Triton; returns the reason it was refused with."""
    if draw.random() < 0.5:
        turn = await session.start(user("go"), response_format=draw.choice(GUIDES), max_output_tokens=8)
        with pytest.raises(TidegateError) as refused:
            await turn.text()
        return refused.value.reason
    return await _send_tensors(triton, draw.choice(TENSORS))


async def _send_tensors(triton: InferenceServerClient, tensors: dict[str, tuple[str, list[Any]]]) -> str:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": "tensorrt_llm", "inputs": [_tensor(name, *it) for name, it in tensors.items()]}

    # Read to the end: Triton (2.51) sometimes never unloads a model after a stream that was cancelled at its error.
    told = [str(error or "") async for _, error in triton.stream_infer(requests())]
    return told[0] if told else ""


def _tensor(name: str, datatype: str, values: list[Any]) -> InferInput:
    tensor = InferInput(name, [len(values)], datatype)
    tensor.set_data_from_numpy(np.array(values, dtype=np.int32 if datatype == "INT32" else np.float32))
    return tensor


async def _good(session: Session) -> str:
    return await (await session.start(user("Name three colours."), max_output_tokens=16)).text()


async def _ask(session: Session, wanted: ResponseFormat, seed: int, most: int = 120) -> str:
    sampling = Sampling(temperature=1.2, seed=seed)
    turn = await session.start(user(QUESTION), response_format=wanted, sampling=sampling, max_output_tokens=most)
    return await turn.text()

"""OpenAI's own Python client against the HTTP door, as a service would use it that only changes an address and a key."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import openai
import pytest
from pydantic import BaseModel

from server.up import show_openai
from tests.bench.router import Router
from tests.bench.tenants import limit, make_key, revoke
from tests.bench.waiting import until
from tests.bench.whole import CANARY, is_idle, run_bench
from tests.bench.worker import Break, Worker

HI: Any = [{"role": "user", "content": CANARY}]


@asynccontextmanager
async def open_client(router: Router, key: str, **options: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    """The asynchronous client, which does not retry unless told to."""
    async with openai.AsyncOpenAI(base_url=f"http://{router.http}/v1", api_key=key, **{"max_retries": 0, **options}) as client:
        yield client


@dataclass(frozen=True, slots=True)
class Served:
    """A router and a client of it."""

    router: Router
    client: openai.AsyncOpenAI


@asynccontextmanager
async def serve(worker: Worker, **options: Any) -> AsyncIterator[Served]:
    """A router that wants keys, and a client that has one."""
    async with run_bench(worker.folder, worker, auth={}) as router, open_client(router, await make_key(router), **options) as client:
        yield Served(router, client)


class City(BaseModel):
    name: str
    people: int


async def test_whole_answers(chatml: Path) -> None:
    """Text, finish, usage, several choices, log probabilities, a seed, stops, and the request id."""
    async with (
        run_bench(chatml, Worker(chatml, ["he", "llo 🔥"]), auth={}) as router,
        open_client(router, await make_key(router)) as client,
    ):
        whole = await client.chat.completions.create(
            model="test", messages=HI, n=2, logprobs=True, seed=1, stop=["🔥"], max_completion_tokens=50, temperature=0.5
        )
        assert [choice.message.content for choice in whole.choices] == ["hello "] * 2
        assert [choice.finish_reason for choice in whole.choices] == ["stop"] * 2
        assert whole.choices[0].logprobs is not None
        assert whole.choices[0].logprobs.content is not None
        assert b"".join(bytes(token.bytes or ()) for token in whole.choices[0].logprobs.content).startswith(b"hello ")
        assert whole.usage is not None
        assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
        assert (whole.object, whole.model, bool(whole._request_id)) == ("chat.completion", "test", True)


async def test_streams(chatml: Path) -> None:
    """Chunks by hand and through the client's own accumulator, with usage at the end."""
    async with (
        run_bench(chatml, Worker(chatml, ["he", "llo 🔥"]), auth={}) as router,
        open_client(router, await make_key(router)) as client,
    ):
        stream = await client.chat.completions.create(model="test", messages=HI, stream=True, stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
        assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == "hello 🔥"
        assert chunks[0].choices[0].delta.role == "assistant"
        assert chunks[-2].choices[0].finish_reason == "stop"
        assert chunks[-1].usage is not None
        async with client.chat.completions.stream(model="test", messages=HI, logprobs=True) as events:
            kinds = [event.type async for event in events]
            final = await events.get_final_completion()
        assert final.choices[0].message.content == "hello 🔥"
        assert "content.done" in kinds


async def test_what_up_prints_works_as_pasted(chatml: Path) -> None:
    """The lines to export and the snippet, in a shell, at a router that asks nobody for a key."""
    async with run_bench(chatml, Worker(chatml, ["ok"])) as router:
        lines = show_openai(router.http).replace("OpenAI ", "").splitlines()[:-1]
        process = await asyncio.create_subprocess_exec(
            *("sh", "-e", "-c", "\n".join(lines)),
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            stdout=asyncio.subprocess.PIPE,
        )
        assert (await process.communicate())[0] == b"ok\n"


async def test_structured_answers(chatml: Path) -> None:
    """A schema made from a class arrives at the worker, and the answer is that class; JSON mode too."""
    worker = Worker(chatml, ['{"name": "Paris", ', '"people": 42}'])
    async with serve(worker) as served:
        parsed = await served.client.chat.completions.parse(model="test", messages=HI, response_format=City)
        assert parsed.choices[0].message.parsed == City(name="Paris", people=42)
        plain = await served.client.chat.completions.create(model="test", messages=HI, response_format={"type": "json_object"})
        assert json.loads(plain.choices[0].message.content or "") == {"name": "Paris", "people": 42}


TOOLS: Any = [
    {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "go"}},
]
LOOK = '<tool_call>\n{"name": "look", "arguments": {"city": "Malmö"}}\n</tool_call>'
GO = '<tool_call>\n{"name": "go", "arguments": {}}\n</tool_call>'


def caller_of_tools(folder: Path) -> Worker:
    """Calls two tools, then answers when it is asked again."""
    worker = Worker(folder, lambda _: ["Sunny."] if worker.calls % 2 == 0 else list(f"Wait.\n{LOOK}\n{GO}"), step_s=0.0)
    return worker


async def test_tools_are_called_and_answered(chatml: Path) -> None:
    """Whole: text and calls with their arguments, whose results the next request holds beside the client's own message object."""
    async with serve(caller_of_tools(chatml)) as served:
        asked = await served.client.chat.completions.create(model="test", messages=HI, tools=TOOLS)
        message = asked.choices[0].message
        assert (asked.choices[0].finish_reason, message.content) == ("tool_calls", "Wait.")
        assert message.tool_calls is not None
        calls = [call for call in message.tool_calls if call.type == "function"]
        assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [("look", {"city": "Malmö"}), ("go", {})]
        results: Any = [{"role": "tool", "tool_call_id": call.id, "content": "seen"} for call in calls]
        after = await served.client.chat.completions.create(model="test", messages=[*HI, cast(Any, message), *results], tools=TOOLS)
        assert after.choices[0].message.content == "Sunny."
        dumped = [*HI, message.model_dump(), *results]
        assert (await served.client.chat.completions.create(model="test", messages=dumped)).choices


async def test_calls_are_streamed(chatml: Path) -> None:
    """In pieces that the client's own accumulator joins; two calls, one of them without arguments."""
    async with serve(caller_of_tools(chatml)) as served:
        async with served.client.chat.completions.stream(model="test", messages=HI, tools=TOOLS) as events:
            kinds = [event.type async for event in events]
            final = await events.get_final_completion()
        assert kinds.count("tool_calls.function.arguments.done") == 2
        assert kinds.count("tool_calls.function.arguments.delta") > 3
        calls = final.choices[0].message.tool_calls or ()
        assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [("look", {"city": "Malmö"}), ("go", {})]


async def test_messages_of_the_clients_helpers_go_back(chatml: Path) -> None:
    """Those that its parser and accumulator made hold what they read from them besides, and are the next request's history as they are."""
    answers = (
        '{"name": "Paris", "people": 42}',
        *['<tool_call>\n{"name": "City", "arguments": {"name": "Malmö", "people": 1}}\n</tool_call>'] * 2,
    )
    worker = Worker(chatml, lambda _: [answers[worker.calls - 1] if worker.calls <= len(answers) else "Sunny."], step_s=0.0)
    options: Any = {"model": "test", "messages": HI}
    tools = [openai.pydantic_function_tool(City)]
    async with serve(worker) as served:
        chat = served.client.chat.completions
        parsed = await chat.parse(**options, response_format=City)
        called = await chat.parse(**options, tools=tools)
        async with chat.stream(**options, tools=tools) as events:
            streamed = await events.get_final_completion()
        for message in (it.choices[0].message for it in (parsed, called, streamed)):
            results: Any = [{"role": "tool", "tool_call_id": call.id, "content": "seen"} for call in message.tool_calls or ()]
            said: Any = message.to_dict(warnings=False)
            after = await chat.create(model="test", messages=[*HI, said, *results, *HI])
            assert after.choices[0].message.content == "Sunny."


async def test_a_cut_call_is_not_to_be_carried_out(chatml: Path) -> None:
    """It finishes as too long, whole and streamed, and the client's own helper refuses it."""
    async with serve(Worker(chatml, list(LOOK), step_s=0.0)) as served:
        options: Any = {"model": "test", "messages": HI, "tools": TOOLS, "max_tokens": 50}
        whole = (await served.client.chat.completions.create(**options)).choices[0]
        assert (whole.finish_reason, whole.message.tool_calls) == ("length", None)
        with pytest.raises(openai.LengthFinishReasonError):
            async with served.client.chat.completions.stream(**options) as events:
                await events.get_final_completion()


async def test_plain_completions(chatml: Path) -> None:
    """Several prompts, each with several answers, whole and streamed."""
    async with serve(Worker(chatml, ["ok"])) as served:
        whole = await served.client.completions.create(model="test", prompt=["a", "b"], n=2, logprobs=0)
        assert [(choice.index, choice.text, choice.finish_reason) for choice in whole.choices] == [(at, "ok", "stop") for at in range(4)]
        stream = await served.client.completions.create(model="test", prompt="a", stream=True)
        assert "".join([choice.text async for chunk in stream for choice in chunk.choices]) == "ok"


async def test_errors_are_the_clients_own(chatml: Path) -> None:
    """Each kind of fault is the exception that programs catch, with the field, the code and the time to wait."""
    worker = Worker(chatml, ["ok"])
    async with run_bench(chatml, worker, auth={}) as router:
        key, narrow = await make_key(router), await make_key(router, models=("other",))
        async with open_client(router, key) as client, open_client(router, "sk-wrong") as nobody, open_client(router, narrow) as bound:
            with pytest.raises(openai.AuthenticationError) as no_key:
                await nobody.chat.completions.create(model="test", messages=HI)
            assert (no_key.value.code, no_key.value.response.headers["www-authenticate"]) == ("invalid_api_key", "Bearer")
            with pytest.raises(openai.PermissionDeniedError):
                await bound.chat.completions.create(model="test", messages=HI)
            with pytest.raises(openai.NotFoundError) as unknown:
                await client.chat.completions.create(model="gpt-4", messages=HI)
            assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
            with pytest.raises(openai.BadRequestError) as typo:
                await client.chat.completions.create(model="test", messages=HI, extra_body={"max_token": 8})
            assert typo.value.param == "max_token"
            with pytest.raises(openai.BadRequestError) as chat_tops:
                await client.chat.completions.create(model="test", messages=HI, logprobs=True, top_logprobs=3)
            with pytest.raises(openai.BadRequestError) as plain_tops:
                await client.completions.create(model="test", prompt="a", logprobs=3)
            refused = [(it.value.code, it.value.param) for it in (chat_tops, plain_tops)]
            assert refused == [("option_unsupported", "top_logprobs"), ("option_unsupported", "logprobs")]
            with pytest.raises(openai.BadRequestError) as long:
                await client.chat.completions.create(model="test", messages=[{"role": "user", "content": "x" * 3000}], stream=True)
            assert long.value.code == "context_length_exceeded"
            assert "maximum context length is" in long.value.message
            with pytest.raises(openai.APIStatusError) as unserved:
                await client.embeddings.create(model="test", input="a")
            assert (unserved.value.status_code, unserved.value.code) == (501, "endpoint_unserved")
            await limit(router, "acme", requests_per_minute=1)
            assert (await client.chat.completions.create(model="test", messages=HI)).choices
            with pytest.raises(openai.RateLimitError) as limited:
                await client.chat.completions.create(model="test", messages=HI)
            assert 0 < int(limited.value.response.headers["retry-after"]) <= 62
            await revoke(router, key)
            with pytest.raises((openai.AuthenticationError, openai.RateLimitError)):
                await client.chat.completions.create(model="test", messages=HI)


async def test_a_fault_in_a_stream_is_raised(chatml: Path) -> None:
    """A stream that breaks off is never taken for a whole answer."""
    async with serve(Worker(chatml, ["a", Break()])) as served:
        with pytest.raises(openai.APIError) as broken:
            async for _ in await served.client.chat.completions.create(model="test", messages=HI, stream=True):
                pass
        assert broken.value.code == "engine_failed"


async def test_retries_do_not_multiply(chatml: Path) -> None:
    """What cannot succeed again is not tried again; what may, is, and no more often than the client says."""
    worker = Worker(chatml, lambda _: [Break()] if worker.calls == 1 else ["ok"])
    async with serve(worker, max_retries=2) as served:
        with pytest.raises(openai.InternalServerError):
            await served.client.chat.completions.create(model="test", messages=HI)
        assert worker.calls == 1
        await until(lambda: all(it.up for it in served.router.app.workers))
        assert (await served.client.chat.completions.create(model="test", messages=HI)).choices[0].message.content == "ok"


async def test_a_closed_stream_is_a_cancelled_turn(chatml: Path) -> None:
    """Leaving the loop over a stream, and cancelling the call of a whole answer, end the generation."""
    worker = Worker(chatml, lambda _: ["a"] * 2000)
    async with serve(worker) as served:
        async with await served.client.chat.completions.create(model="test", messages=HI, stream=True, max_tokens=2000) as stream:
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
        await until(lambda: worker.engine.cancelled == 1, within_s=1.0)
        whole = asyncio.create_task(served.client.chat.completions.create(model="test", messages=HI, max_tokens=2000))
        await until(lambda: worker.calls == 2)
        whole.cancel()
        await until(lambda: is_idle(served.router, worker), within_s=1.0)


async def test_models(chatml: Path) -> None:
    """A key sees the models that it may use."""
    async with run_bench(chatml, Worker(chatml), auth={}) as router:
        async with open_client(router, await make_key(router)) as client:
            assert [model.id async for model in client.models.list()] == ["test"]
            assert (await client.models.retrieve("test")).owned_by == "tidegate"
        async with open_client(router, await make_key(router, models=("other",))) as client:
            assert [model.id async for model in client.models.list()] == []
            with pytest.raises(openai.NotFoundError):
                await client.models.retrieve("test")


async def test_the_synchronous_client(chatml: Path) -> None:
    """In a thread, as scripts use it."""
    async with run_bench(chatml, Worker(chatml, ["ok"]), auth={}) as router:
        key = await make_key(router)

        def ask() -> str:
            with openai.OpenAI(base_url=f"http://{router.http}/v1", api_key=key, max_retries=0) as client:
                stream = client.chat.completions.create(model="test", messages=HI, stream=True)
                return "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)

        assert await asyncio.to_thread(ask) == "ok"

"""What the Python client asks for, in both forms of it: tools by name, tokens counted, and where the router is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tidegate import Client, TidegateError, user
from tidegate.options import build_spec
from tidegate.sync import Client as SyncClient
from tidegate.v1.turn_pb2 import TOOL_MODE_NONE, ToolChoice

from tests.bench.whole import run_bench
from tests.bench.worker import Worker


def look(city: str) -> str:
    """Looks out of the window."""
    return f"rain in {city}"


def go() -> str:
    """Goes."""
    return "gone"


@pytest.mark.parametrize(
    ("given", "choice"),
    [("look", ToolChoice(tool="look")), ("none", ToolChoice(mode=TOOL_MODE_NONE)), (ToolChoice(tool="go"), ToolChoice(tool="go"))],
    ids=["name", "mode", "message"],
)
def test_a_tool_is_chosen_by_a_word(given: ToolChoice | str, choice: ToolChoice) -> None:
    """A mode's, or a tool's own name."""
    spec = build_spec(["hi"], {"tools": [look, go], "tool_choice": given, "parallel_tool_calls": False}, None)
    assert (spec.tool_choice, spec.parallel_tool_calls) == (choice, False)
    assert not build_spec(["hi"], {"tools": [look]}, None).HasField("tool_choice")


async def test_a_forced_call_is_forced_once(chatml: Path) -> None:
    """In the first round: in the next the model may answer."""
    call = '<tool_call>\n{"name": "look", "arguments": {"city": "Malmö"}}\n</tool_call>'
    worker = Worker(chatml, lambda request: [call] if worker.calls == 1 else ["It rains."])
    async with run_bench(chatml, worker) as router, router.client() as client:
        assert await client.run_tools("weather?", tools=[look, go], tool_choice="look").text() == "It rains."
    assert [request.guide is not None for request in worker.engine.requests] == [True, False]


async def test_tokens_are_counted_without_a_turn(chatml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tools and without, by the asynchronous client and the other; the router is where the environment says."""
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router:
        monkeypatch.setenv("TIDEGATE_TARGET", router.target)
        async with Client() as client:
            plain = await client.count_tokens("hi")
            more = await client.count_tokens(user("hi"), "ho", tools=[look])
            assert 0 < plain.prompt_tokens < more.prompt_tokens < plain.context_tokens
            with pytest.raises(TidegateError, match="MODEL_UNKNOWN"):
                await client.count_tokens("hi", model="other")

        def count() -> int:
            with SyncClient() as client:
                return client.count_tokens("hi").prompt_tokens

        assert await asyncio.to_thread(count) == plain.prompt_tokens
        assert worker.calls == 0

"""The same turns through gRPC, WebSocket, both resumed behind each frame, server-sent events and whole answers: the same comes of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidegate import assistant, system, user
from tidegate.v1.turn_pb2 import (
    ROLE_ASSISTANT,
    ROLE_TOOL,
    ROLE_USER,
    TOOL_MODE_NONE,
    Message,
    ResponseFormat,
    Sampling,
    Tool,
    ToolCall,
    ToolChoice,
    TurnSpec,
)

from server.engine.base import Request
from server.engine.base import Sampling as EngineSampling
from tests.bench.doors import DOORS, Outcome
from tests.bench.tenants import entries
from tests.bench.whole import run_bench
from tests.bench.worker import Break, End, Finish, Item, Worker

HI = [user("hi")]
HI_JSON = [{"role": "user", "content": "hi"}]


@dataclass(frozen=True, slots=True)
class Case:
    """A turn as gRPC and as HTTP have it, what the worker plays, and what every caller must learn; None is not compared."""

    spec: TurnSpec
    body: dict[str, Any]
    text: str = "hello"
    finish: str = "stop"
    error: str = ""
    script: Iterable[Item] = ("he", "llo")
    token_bytes: bytes = b""
    tool_calls: tuple[tuple[str, str], ...] = ()
    calls: int = 1


def asking(*, body: dict[str, Any] | None = None, **spec: Any) -> tuple[TurnSpec, dict[str, Any]]:
    """The plain question with options, in both forms; `body` where HTTP spells them differently."""
    return TurnSpec(messages=HI, **spec), {"messages": HI_JSON, **(spec if body is None else body)}


def refused(error: str, *, body: dict[str, Any] | None = None, **spec: Any) -> Case:
    """A turn that reaches no worker."""
    return Case(*asking(body=body, **spec), "", "", error, calls=0)


SAMPLING: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.25,
    "top_k": 3,
    "seed": 7,
    "presence_penalty": 1.0,
    "frequency_penalty": -1.0,
    "min_p": 0.125,
}
ZEROS: dict[str, Any] = dict.fromkeys(("temperature", "top_k", "seed", "presence_penalty", "frequency_penalty", "min_p"), 0)
TOOLS: dict[str, Any] = {
    "tools": [
        {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "go"}},
    ]
}
LOOK = '<tool_call>\n{"name": "look", "arguments": {"x": 42}}\n</tool_call>'
GO = '<tool_call>\n{"name": "go", "arguments": {}}\n</tool_call>'
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}

GOOD: dict[str, Case] = {
    "plain": Case(*asking()),
    "split characters": Case(*asking(), "🔥é", script=[b"\xf0\x9f", b"\x94", b"\xa5\xc3", b"\xa9"]),
    "impossible byte": Case(*asking(), "ok\ufffd end", script=["ok", b"\xff", " end"]),
    "length": Case(*asking(max_output_tokens=3, body={"max_tokens": 3}), "hel", "length"),
    "newer name of length": Case(*asking(max_output_tokens=3, body={"max_completion_tokens": 3, "max_tokens": 4}), "hel", "length"),
    "stop": Case(*asking(stop=["ll"]), "he"),
    "stop as a text": Case(*asking(stop=["ll"], body={"stop": "ll"}), "he"),
    "not before length": Case(
        *asking(max_output_tokens=9, min_output_tokens=9, body={"max_tokens": 20, "max_completion_tokens": 9, "ignore_eos": True})
    ),
    "no stop": Case(*asking(body={"stop": None})),
    "held back": Case(*asking(stop=["DEF"]), "AB D", script=["AB D"]),
    "sampling": Case(*asking(sampling=Sampling(**SAMPLING), body=SAMPLING)),
    "zeros are not absent": Case(*asking(sampling=Sampling(**ZEROS), body=ZEROS)),
    "log probabilities": Case(*asking(logprobs=True), "🔥", script=[b"\xf0\x9f", b"\x94\xa5"], token_bytes="🔥".encode()),
    "JSON": Case(*asking(response_format=ResponseFormat(json_object={}), body={"response_format": {"type": "json_object"}})),
    "schema": Case(
        *asking(
            response_format=ResponseFormat(json_schema='{"maxLength": 42, "const": 9007199254740993}'),
            body={
                "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"maxLength": 42, "const": 2**53 + 1}}}
            },
        )
    ),
    "regex": Case(*asking(response_format=ResponseFormat(regex="a+"), body={"response_format": {"type": "regex", "regex": "a+"}})),
    "conversation": Case(
        TurnSpec(messages=[system("be"), user("a\nb"), assistant("c"), user("d")]),
        {
            "messages": [
                {"role": "developer", "content": "be"},
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "ann"},
                {"role": "assistant", "content": "c", "refusal": None, "tool_calls": None},
                {"role": "user", "content": "d"},
            ]
        },
    ),
    "call and result": Case(
        TurnSpec(
            messages=[
                *HI,
                Message(role=ROLE_ASSISTANT, tool_calls=[ToolCall(id="c1", name="f", arguments_json='{"x":1}')]),
                Message(role=ROLE_TOOL, content="42", tool_call_id="c1"),
            ]
        ),
        {
            "messages": [
                *HI_JSON,
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "content": "42", "tool_call_id": "c1"},
            ]
        },
    ),
    "a call without a result": Case(
        TurnSpec(messages=[*HI, Message(role=ROLE_ASSISTANT, tool_calls=[ToolCall(id="c1", name="f", arguments_json='{"x":1}')]), *HI]),
        {"messages": [*HI_JSON, {"role": "assistant", "content": None, "tool_calls": [CALL]}, *HI_JSON]},
    ),
    "tool calls": Case(
        *asking(tools=[Tool(name="look", description="Looks.", parameters_json='{"type": "object"}'), Tool(name="go")], body=TOOLS),
        "Wait.",
        "tool_calls",
        script=f"Wait.\n{LOOK}\n{GO}",
        tool_calls=(("look", '{"x": 42}'), ("go", "{}")),
    ),
    "tools that are not called": Case(*asking(tools=[Tool(name="go")], body={"tools": TOOLS["tools"][1:]})),
    "no tools wanted": Case(
        *asking(
            tools=[Tool(name="go")], tool_choice=ToolChoice(mode=TOOL_MODE_NONE), body={"tools": TOOLS["tools"][1:], "tool_choice": "none"}
        ),
        GO,
        script=GO,
    ),
    "ignored options": Case(*asking(body={"user": "ann", "metadata": {"a": "b"}, "store": False, "service_tier": "auto", "n": 1})),
    "worker breaks": Case(*asking(), "he", "", "engine_failed", ["he", Break()]),
    "worker drops it": Case(*asking(), "he", "", "worker_lost", ["he", End(Finish.CANCELLED)]),
}

BAD: dict[str, Case] = {
    "no messages": Case(TurnSpec(), {"messages": []}, "", "", "field_invalid", calls=0),
    "null content": Case(
        TurnSpec(messages=[Message(role=ROLE_USER)]), {"messages": [{"role": "user", "content": None}]}, "", "", "field_invalid", calls=0
    ),
    "unknown model": refused("model_not_found", model="nope"),
    "hot": refused("field_invalid", sampling=Sampling(temperature=2.5), body={"temperature": 2.5}),
    "no top": refused("field_invalid", sampling=Sampling(top_p=0), body={"top_p": 0}),
    "empty stop": refused("field_invalid", stop=["a", ""]),
    "no tokens": refused("field_invalid", max_output_tokens=0, body={"max_tokens": 0}),
    "long prompt": Case(
        TurnSpec(messages=[user("x" * 2048)]),
        {"messages": [{"role": "user", "content": "x" * 2048}]},
        "",
        "",
        "context_length_exceeded",
        calls=0,
    ),
    "unknown tool": refused(
        "field_invalid",
        tools=[Tool(name="go")],
        tool_choice=ToolChoice(tool="other"),
        body={"tools": TOOLS["tools"][1:], "tool_choice": {"type": "function", "function": {"name": "other"}}},
    ),
    "calls of a user": Case(
        TurnSpec(messages=[Message(role=ROLE_USER, content="a", tool_calls=[ToolCall(id="c1", name="f", arguments_json='{"x":1}')])]),
        {"messages": [{"role": "user", "content": "a", "tool_calls": [CALL]}]},
        "",
        "",
        "field_invalid",
        calls=0,
    ),
}


async def test_every_door_gives_the_same(chatml: Path) -> None:
    """Text, finish, usage, log probabilities and errors; what the worker is asked; and what is booked."""
    asked: list[Request] = []
    case = next(iter(GOOD.values()))

    def play(request: Request) -> Iterable[Item]:
        asked.append(request)
        return case.script

    async with run_bench(chatml, Worker(chatml, play)) as router:
        for name, case in (GOOD | BAD).items():  # `play` plays the case in turn
            asked.clear()
            outcomes = {door: await ask(router, case.spec, case.body) for door, ask in DOORS.items()}
            for door, outcome in outcomes.items():
                assert_as_told(f"{name} by {door}", outcome, case, outcomes["grpc"])
            assert len(asked) == case.calls * len(DOORS), name
            assert len({(*it.prompt, it.max_new_tokens, _settled(it), it.guide, it.log_probs) for it in asked}) <= 1, name


def _settled(request: Request) -> EngineSampling:
    """Where no temperature is asked for, OpenAI's door has OpenAI's, which is 1, and sampled guided turns get a seed; the others
    leave it to the engine."""
    given = request.sampling
    told = given if given.temperature is not None else replace(given, temperature=1.0)
    return replace(told, seed=None) if request.guide else told


def assert_as_told(label: str, outcome: Outcome, case: Case, by_grpc: Outcome) -> None:
    """What the case expects, and otherwise what gRPC tells; a failed answer that is not streamed is an error and nothing else."""
    assert outcome.error == case.error, label
    if case.error and "whole" in label:
        return
    assert (outcome.text, outcome.finish, outcome.token_bytes) == (case.text, case.finish, case.token_bytes), label
    assert outcome.calls == case.tool_calls, label
    if not case.error:
        assert outcome.usage == by_grpc.usage, label
        assert outcome.usage[0] > 0, label


async def test_tokens_are_booked_alike(chatml: Path) -> None:
    """The ledger holds one complete turn for each door, with the tokens that its caller was told."""
    case = GOOD["plain"]
    async with run_bench(chatml, Worker(chatml, case.script)) as router:
        told = [(await ask(router, case.spec, case.body)).usage for ask in DOORS.values()]
        booked = await entries(router)
    assert [(it.prompt_tokens, it.completion_tokens, it.cached_tokens) for it in booked] == told
    assert {it.finish for it in booked} == {"stop"}

"""Tool calling: how calls arrive, what the model is told, and how results continue a turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tidegate import TidegateError, user
from tidegate.v1.chat_service_pb2 import CompleteRequest, CountTokensRequest, StreamRequest
from tidegate.v1.event_pb2 import (
    FINISH_REASON_CANCELLED,
    FINISH_REASON_LENGTH,
    FINISH_REASON_STOP,
    FINISH_REASON_TOOL_CALLS,
    Event,
)
from tidegate.v1.turn_pb2 import TOOL_MODE_NONE, TOOL_MODE_REQUIRED, ResponseFormat, Tool, ToolCall, ToolChoice, TurnSpec

from router.text.tokenizer import Tokenizer
from server.engine.base import Request
from tests.bench.http import chat, connect
from tests.bench.talk import calls_in, talking, text_in
from tests.bench.tenants import entries
from tests.bench.waiting import until
from tests.bench.whole import ask, run_bench
from tests.bench.worker import Item, Wait, Worker

CITY = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'
TOOLS = [Tool(name="look", description="Looks.", parameters_json=CITY), Tool(name="go")]
SPEC = TurnSpec(messages=[ask()], tools=TOOLS)
LOOK = '<tool_call>\n{"name": "look", "arguments": {"city": "Malmö"}}\n</tool_call>'
GO = '<tool_call>\n{"name": "go", "arguments": {}}\n</tool_call>'


def prompt_of(request: Request, folder: Path) -> str:
    """The prompt that reached the engine, without control tokens."""
    table = Tokenizer.load(folder).token_bytes
    return b"".join(table[token] for token in request.prompt).decode()


def worker_that_looks(folder: Path) -> Worker:
    """Calls until the prompt holds a result, then says something; one byte a step."""

    def play(request: Request) -> list[Item]:
        answered = "seen" in prompt_of(request, folder)
        return [bytes((byte,)) for byte in ("Sunny." if answered else f"Wait.\n{LOOK}").encode()]

    return Worker(folder, play, step_s=0)


def kinds(events: list[Event]) -> list[str]:
    """Kinds of the events, neighbours of one kind once."""
    names = [event.WhichOneof("event") or "" for event in events]
    return [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]


async def test_a_call_arrives_in_pieces(chatml: Path) -> None:
    """Text, then the call: id and name first, then its arguments as they come; the turn finishes with tool calls."""
    async with run_bench(chatml, worker_that_looks(chatml)) as router, talking(router.target) as talk:
        await talk.start(1, SPEC)
        events = await talk.end_of(1)
    assert kinds(events) == ["started", "text_delta", "tool_call_delta", "usage", "finished"]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert text_in(events) == "Wait."
    (call,) = calls_in(events)
    assert (len(call.id), call.name, json.loads(call.arguments_json)) == (9, "look", {"city": "Malmö"})
    deltas = [event.tool_call_delta for event in events if event.HasField("tool_call_delta")]
    assert [bool(delta.call_id) for delta in deltas] == [bool(delta.name) for delta in deltas] == [True] + [False] * (len(deltas) - 1)
    assert events[-1].finished.finish_reason == FINISH_REASON_TOOL_CALLS


async def test_results_continue_the_turn(chatml: Path) -> None:
    """Under the same number come a second `started` and the answer; the model sees its call and the result. The ledger has two turns."""
    worker = worker_that_looks(chatml)
    async with run_bench(chatml, worker) as router, talking(router.target) as talk:
        await talk.start(1, SPEC)
        first = await talk.end_of(1)
        (call,) = calls_in(first)
        await talk.give(1, **{call.id: "seen"})
        second = await talk.end_of(1)
        prompt = prompt_of(worker.engine.requests[-1], chatml)
        assert len(await entries(router)) == 2
    assert kinds(second) == ["started", "text_delta", "usage", "finished"]
    assert (text_in(second), second[-1].finished.finish_reason) == ("Sunny.", FINISH_REASON_STOP)
    assert second[0].sequence == first[-1].sequence + 1
    assert f"assistant\nWait.{LOOK}" in prompt
    assert "tool\nseen" in prompt
    assert first[0].started.turn_id != second[0].started.turn_id


async def test_a_turn_may_call_again_and_again(chatml: Path) -> None:
    """Each time it waits for the results of its newest calls; another turn runs beside it."""
    async with run_bench(chatml, Worker(chatml, [LOOK, GO])) as router, talking(router.target) as talk:
        await talk.start(1, SPEC)
        for _ in range(3):
            calls = calls_in(await talk.end_of(1))
            assert [call.name for call in calls] == ["look", "go"]
            await talk.start(2, SPEC) if _ == 0 else None
            await talk.give(1, **{call.id: "seen" for call in reversed(calls)})
        assert calls_in(await talk.end_of(2))


async def test_wrong_results_fail_the_turn_which_waits_on(chatml: Path) -> None:
    """The caller may mend them."""
    async with run_bench(chatml, worker_that_looks(chatml)) as router, talking(router.target) as talk:
        await talk.start(1, SPEC)
        (call,) = calls_in(await talk.end_of(1))
        await talk.give(1, wrong="seen")
        (failed,) = await talk.end_of(1)
        error = TidegateError(failed.failed.status)
        assert (error.reason, list(error.fields)) == ("FIELD_INVALID", ["tool_results.results[0].call_id", "tool_results.results"])
        await talk.give(1, **{call.id: "seen"})
        assert text_in(await talk.end_of(1)) == "Sunny."


@pytest.mark.parametrize("how", ["finished", "answered", "given up"])
async def test_results_for_a_turn_that_waits_no_longer_fail_it(chatml: Path, how: str) -> None:
    """The stream lives."""
    spec = TurnSpec(messages=[ask("seen")]) if how == "finished" else SPEC
    async with run_bench(chatml, worker_that_looks(chatml)) as router, talking(router.target) as talk:
        await talk.start(1, spec)
        calls = {call.id: "seen" for call in calls_in(await talk.end_of(1))}
        if how == "answered":
            await talk.give(1, **calls)
            await talk.end_of(1)
        elif how == "given up":
            await talk.cancel(1)
        await talk.give(1, **calls)
        assert TidegateError((await talk.end_of(1))[-1].failed.status).reason == "TURN_UNKNOWN"
        await talk.start(2, SPEC)
        assert calls_in(await talk.end_of(2))


async def test_results_for_a_turn_that_runs_end_the_stream(chatml: Path) -> None:
    """The caller has lost count."""
    async with run_bench(chatml, Worker(chatml, ["a", Wait(1000)])) as router, talking(router.target) as talk:
        await talk.start(1, SPEC)
        await talk.end_of(1, ["text_delta"])
        await talk.give(1, x="seen")
        with pytest.raises(TidegateError, match="waits for tool results"):
            await talk.end_of(1)


async def test_a_waiting_turn_does_not_keep_a_stream_open(chatml: Path) -> None:
    """Half-close says that no results come."""
    async with run_bench(chatml, Worker(chatml, [LOOK])) as router, talking(router.target) as talk:
        await talk.start(1, SPEC)
        await talk.end_of(1)
        await talk.half_close()
        with pytest.raises(EOFError):
            await talk.end_of(2)


async def test_a_turn_is_cancelled_in_a_call(chatml: Path) -> None:
    """It finishes as cancelled, leaves the engine and does not wait for results."""
    worker = Worker(chatml, [LOOK[:50], Wait(1000)])
    async with run_bench(chatml, worker) as router, talking(router.target) as talk:
        await talk.start(1, SPEC)
        (call,) = calls_in(await talk.end_of(1, ["tool_call_delta"]))
        await talk.cancel(1)
        assert (await talk.end_of(1))[-1].finished.finish_reason == FINISH_REASON_CANCELLED
        await until(lambda: worker.engine.cancelled == 1)
        await talk.give(1, **{call.id: "seen"})
        assert (await talk.end_of(1))[-1].HasField("failed")


async def test_stop_texts_are_for_text(chatml: Path) -> None:
    """They end the answer in front of a call, and are not looked for in it."""
    spec = TurnSpec(messages=[ask()], tools=TOOLS, stop=["city", "END"])
    async with run_bench(chatml, Worker(chatml, [f"a {LOOK}"])) as router, router.stub() as stub:
        answer = await stub.Complete(CompleteRequest(spec=spec))
        assert (answer.text, len(answer.tool_calls), answer.finish_reason) == ("a", 1, FINISH_REASON_TOOL_CALLS)
    async with run_bench(chatml, Worker(chatml, [f"a END {LOOK}"])) as router, router.stub() as stub:
        answer = await stub.Complete(CompleteRequest(spec=spec))
        assert (answer.text, len(answer.tool_calls), answer.finish_reason) == ("a ", 0, FINISH_REASON_STOP)


async def test_calls_come_by_every_door(chatml: Path) -> None:
    """Whole from Complete, in pieces from Stream."""
    async with run_bench(chatml, Worker(chatml, [f"Wait. {LOOK}{GO}"])) as router, router.stub() as stub:
        answer = await stub.Complete(CompleteRequest(spec=SPEC))
        events = [event async for frame in stub.Stream(StreamRequest(spec=SPEC)) for event in frame.events]
    for calls in (list(answer.tool_calls), calls_in(events)):
        assert [(call.name, call.arguments_json) for call in calls] == [("look", '{"city": "Malmö"}'), ("go", "{}")]
    assert (answer.text, answer.finish_reason) == ("Wait.", FINISH_REASON_TOOL_CALLS)


async def test_an_answer_that_is_cut_has_no_calls_to_carry_out(chatml: Path) -> None:
    """Complete leaves them out, also the whole one before the cut."""
    spec = TurnSpec(messages=[ask()], tools=TOOLS, max_output_tokens=len((LOOK + GO).encode()) - 20)
    async with run_bench(chatml, Worker(chatml, [LOOK + GO])) as router, router.stub() as stub:
        answer = await stub.Complete(CompleteRequest(spec=spec))
    assert (len(answer.tool_calls), answer.finish_reason) == (0, FINISH_REASON_LENGTH)


async def test_one_call_is_enough_when_they_are_not_to_be_parallel(chatml: Path) -> None:
    """The worker is not asked for more."""
    spec = TurnSpec(messages=[ask()], tools=TOOLS, parallel_tool_calls=False)
    async with run_bench(chatml, Worker(chatml, [LOOK, GO, Wait(1000)])) as router, router.stub() as stub:
        answer = await stub.Complete(CompleteRequest(spec=spec))
    assert [call.name for call in answer.tool_calls] == ["look"]


async def test_the_model_is_told_of_tools_unless_it_may_call_none(chatml: Path) -> None:
    """With none chosen, what looks like a call is text."""
    worker = Worker(chatml, [LOOK])
    async with run_bench(chatml, worker) as router, router.stub() as stub:
        for choice, told in ((ToolChoice(), True), (ToolChoice(mode=TOOL_MODE_NONE), False)):
            answer = await stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask()], tools=TOOLS, tool_choice=choice)))
            prompt = prompt_of(worker.engine.requests[-1], chatml)
            assert ("Looks." in prompt, "required" in prompt, bool(answer.tool_calls)) == (told,) * 3
    assert answer.text == LOOK


@pytest.mark.parametrize("choice", [ToolChoice(mode=TOOL_MODE_REQUIRED), ToolChoice(tool="look")])
async def test_a_forced_call_begins_in_the_prompt_and_is_guided(chatml: Path, choice: ToolChoice) -> None:
    """The worker gets a schema of the tools that may be called; what follows the results is not forced."""
    worker = Worker(chatml, ['{"name":"look","arguments":{"city":"Oslo"}}'])
    async with run_bench(chatml, worker) as router, talking(router.target) as talk:
        await talk.start(1, TurnSpec(messages=[ask()], tools=TOOLS, tool_choice=choice))
        (call,) = calls_in(await talk.end_of(1))
        asked = worker.engine.requests[-1]
        assert call.arguments_json == '{"city":"Oslo"}'
        assert prompt_of(asked, chatml).endswith("assistant\n<tool_call>\n")
        assert asked.guide is not None
        assert ("go" in json.loads(asked.guide.text)["$defs"]) == (not choice.tool)
        await talk.give(1, **{call.id: "seen"})
        await talk.end_of(1)
        assert worker.engine.requests[-1].guide is None


FORM = '{"type": "object", "properties": {"weather": {"enum": ["sunny"]}}, "required": ["weather"]}'
CALLED = '{"name":"look","arguments":{"city":"Oslo"}}'


async def test_with_tools_an_answer_is_a_call_or_has_the_form(chatml: Path) -> None:
    """By either door: the guide holds both, so the model may call first and answer in the form with the result."""

    def play(request: Request) -> list[Item]:
        return ['{"weather":"sunny"}' if "seen" in prompt_of(request, chatml) else CALLED]

    worker = Worker(chatml, play)
    spec = TurnSpec(messages=[ask()], tools=TOOLS, response_format=ResponseFormat(json_schema=FORM))
    async with run_bench(chatml, worker) as router, talking(router.target) as talk, connect(router.http) as caller:
        await talk.start(1, spec)
        (call,) = calls_in(await talk.end_of(1))
        await talk.give(1, **{call.id: "seen"})
        assert text_in(await talk.end_of(1)) == '{"weather":"sunny"}'
        tools = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": json.loads(CITY)}}]
        tools.append({"type": "function", "function": {"name": "go"}})
        wanted = {"type": "json_schema", "json_schema": {"name": "weather", "schema": json.loads(FORM), "strict": True}}
        body = chat("hi", tools=tools, response_format=wanted)
        (asked,) = (await caller.ask(value=body)).json["choices"]
        assert (asked["finish_reason"], asked["message"]["tool_calls"][0]["function"]["name"]) == ("tool_calls", "look")
        result = {"role": "tool", "tool_call_id": asked["message"]["tool_calls"][0]["id"], "content": "seen"}
        body["messages"] += [asked["message"], result]
        (answered,) = (await caller.ask(value=body)).json["choices"]
        assert (answered["finish_reason"], answered["message"]["content"]) == ("stop", '{"weather":"sunny"}')
    guides = [json.loads(it.guide.text) for it in worker.engine.requests if it.guide]
    assert guides == [guides[0]] * 4
    assert sorted(guides[0]["$defs"]) == ["go", "look", "response.format"]


@pytest.mark.parametrize("choice", [ToolChoice(mode=TOOL_MODE_REQUIRED), ToolChoice(tool="look")])
async def test_a_forced_call_goes_before_the_form(chatml: Path, choice: ToolChoice) -> None:
    """The guide is the call's; the turn that goes on with the result may have either."""
    worker = Worker(chatml, [CALLED])
    spec = TurnSpec(messages=[ask()], tools=TOOLS, tool_choice=choice, response_format=ResponseFormat(json_schema=FORM))
    async with run_bench(chatml, worker) as router, talking(router.target) as talk:
        await talk.start(1, spec)
        (call,) = calls_in(await talk.end_of(1))
        await talk.give(1, **{call.id: "seen"})
        await talk.end_of(1)
    forced, free = (json.loads(it.guide.text)["$defs"] for it in worker.engine.requests if it.guide)
    assert "response.format" not in forced
    assert "response.format" in free


async def test_tools_count_as_prompt(chatml: Path) -> None:
    """Counting tells what a turn's `started` tells, with tools, without, and when a call is forced."""
    counts = set()
    async with run_bench(chatml, Worker(chatml)) as router, router.stub() as stub:
        for tools, choice in (([], ToolChoice()), (TOOLS, ToolChoice()), (TOOLS, ToolChoice(tool="go"))):
            counted = await stub.CountTokens(CountTokensRequest(messages=[ask()], tools=tools, tool_choice=choice))
            spec = TurnSpec(messages=[ask()], tools=tools, tool_choice=choice)
            answer = await stub.Complete(CompleteRequest(spec=spec))
            assert counted.prompt_tokens == answer.started.prompt_tokens
            counts.add(counted.prompt_tokens)
    assert len(counts) == 3


async def test_history_with_calls_is_written_as_the_template_has_it(chatml: Path) -> None:
    """Calls and results of earlier turns, whoever made them."""
    call = ToolCall(id="call_abc", name="look", arguments_json='{"city": "Oslo"}')
    history = TurnSpec(messages=[user("hi")], tools=TOOLS)
    history.messages.add(role="ROLE_ASSISTANT", tool_calls=[call])
    history.messages.add(role="ROLE_TOOL", tool_call_id="call_abc", content="sunny")
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router, router.stub() as stub:
        await stub.Complete(CompleteRequest(spec=history))
        prompt = prompt_of(worker.engine.requests[-1], chatml)
    assert '<tool_call>\n{"name": "look", "arguments": {"city": "Oslo"}}\n</tool_call>' in prompt
    assert "tool\nsunny" in prompt

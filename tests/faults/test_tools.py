"""Tool calls that others have got wrong: lost, glued together, cut and called complete, or told in the wrong order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from tidegate import TidegateError
from tidegate.v1.chat_service_pb2 import CancelTurn, CompleteRequest, ConverseRequest
from tidegate.v1.event_pb2 import FINISH_REASON_CANCELLED, FINISH_REASON_LENGTH, FINISH_REASON_TOOL_CALLS
from tidegate.v1.turn_pb2 import TOOL_MODE_REQUIRED, Tool, ToolChoice, TurnSpec

from router.text.tokenizer import Tokenizer
from server.engine.base import Request
from tests.bench.calls import failure_of
from tests.bench.http import chat, connect
from tests.bench.resuming import ResumingCaller
from tests.bench.talk import calls_in, talking, text_in
from tests.bench.whole import CANARY, ask, run_bench
from tests.bench.wires import Face, on_both_faces
from tests.bench.worker import End, Finish, Item, Wait, Worker

TOOLS = [Tool(name="a"), Tool(name="b")]
SPEC = TurnSpec(messages=[ask()], tools=TOOLS)
HEAD = '<tool_call>\n{"name": "b", "arguments": '
CALL = HEAD + '{"x": 42}}\n</tool_call>'


async def test_a_tool_without_parameters_has_an_empty_object(chatml: Path) -> None:
    """Neither is nothing sent for it, nor is it glued to the arguments of the next call (fault 11)."""
    empty = '<tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>\n'
    async with run_bench(chatml, Worker(chatml, list(empty + CALL))) as router, talking(router.target) as talk:
        await talk.start(1, SPEC)
        calls = calls_in(await talk.end_of(1))
    assert [(call.name, json.loads(call.arguments_json)) for call in calls] == [("a", {}), ("b", {"x": 42})]


async def test_a_cut_call_is_not_told_as_complete(chatml: Path) -> None:
    """The length ends it in its arguments or behind them: the turn finishes with length, and nobody has a call to carry out (fault 13)."""
    async with run_bench(chatml, Worker(chatml, [CALL])) as router, router.stub() as stub:
        for kept in range(len(HEAD) + 1, len(CALL)):
            answer = await stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask()], tools=TOOLS, max_output_tokens=kept)))
            assert (answer.finish_reason, len(answer.tool_calls)) == (FINISH_REASON_LENGTH, 0)


FORCED = '{"name":"b","arguments":{"x":42}}'


@pytest.mark.parametrize("choice", [ToolChoice(mode=TOOL_MODE_REQUIRED), ToolChoice(tool="b")])
async def test_a_forced_answer_is_a_call_or_nothing(chatml: Path, choice: ToolChoice) -> None:
    """Wherever the length ends it, none of its notation is told as text, and no part of the call, by any door, streamed or whole."""
    named: Any = {"type": "function", "function": {"name": "b"}} if choice.tool else "required"
    tools = [{"type": "function", "function": {"name": name}} for name in "ab"]
    async with run_bench(chatml, Worker(chatml, [FORCED])) as router, talking(router.target) as talk, connect(router.http) as caller:
        for kept in range(1, len(FORCED) + 1):
            is_whole = kept >= len(FORCED) - 1
            spec = TurnSpec(messages=[ask()], tools=TOOLS, tool_choice=choice, max_output_tokens=kept)
            await talk.start(kept, spec)
            told = await talk.end_of(kept)
            end = FINISH_REASON_TOOL_CALLS if is_whole else FINISH_REASON_LENGTH
            assert (text_in(told), len(calls_in(told)), told[-1].finished.finish_reason) == ("", int(is_whole), end)
            body = chat(f"{CANARY} go", tools=tools, tool_choice=named, max_tokens=kept)
            (choice_told,) = (await caller.ask(value=body)).json["choices"]
            streamed = await caller.ask(value=body | {"stream": True})
            pieces = [it["choices"][0] for it in streamed.chunks]
            calls = [it["delta"]["tool_calls"][0]["function"]["arguments"] for it in pieces if "tool_calls" in it["delta"]]
            whole = [it["function"]["arguments"] for it in choice_told["message"].get("tool_calls", ())]
            assert (choice_told["message"]["content"] or "", streamed.text) == ("", "")
            assert (whole, "".join(calls)) == ((['{"x":42}'], '{"x":42}') if is_whole else ([], ""))
            assert choice_told["finish_reason"] == pieces[-1]["finish_reason"] == ("tool_calls" if is_whole else "length")


@on_both_faces
async def test_a_turn_that_was_ended_in_its_call_is_nobodys_history(chatml: Path, face: Face) -> None:
    """Half a call is in no later prompt, and the next turn of the stream works (fault 77)."""
    worker = Worker(chatml, lambda _: [HEAD + '{"x": ', Wait(1000)] if worker.calls == 1 else ["ok"])
    async with run_bench(chatml, worker) as router, face.at(router) as dial:
        caller = ResumingCaller(0)
        await caller.connect(dial)
        turn = await caller.start(SPEC)
        while not caller.calls:
            await caller.read()
        await caller.send(ConverseRequest(cancel=CancelTurn(turn=turn)))
        await caller.read_until_ended(turn)
        assert caller.ended[turn].finished.finish_reason == FINISH_REASON_CANCELLED
        after = await caller.start(SPEC)
        await caller.read_until_ended(after)
    assert caller.texts[after] == "ok"
    assert worker.engine.requests[0].prompt == worker.engine.requests[1].prompt


@pytest.mark.parametrize(("finish", "reason"), [(Finish.FAILED, "ENGINE_FAILED"), (Finish.CANCELLED, "WORKER_LOST")])
async def test_a_worker_lost_in_a_call_fails_the_turn(chatml: Path, finish: Finish, reason: str) -> None:
    """Half a call never looks like a whole one, and its turn waits for no results (fault 47)."""
    async with run_bench(chatml, Worker(chatml, [HEAD + '{"x": ', End(finish)])) as router, talking(router.target) as talk:
        await talk.start(1, SPEC)
        events = await talk.end_of(1)
        assert calls_in(events)[0].arguments_json == '{"x": '
        assert TidegateError(events[-1].failed.status).reason == reason
        await talk.give(1, **{calls_in(events)[0].id: "seen"})
        assert TidegateError((await talk.end_of(1))[-1].failed.status).reason == "TURN_UNKNOWN"


async def test_text_that_a_stop_held_back_comes_before_the_call(chatml: Path) -> None:
    """By the events' order (fault 5)."""
    spec = TurnSpec(messages=[ask()], tools=TOOLS, stop=["DEF"])
    async with run_bench(chatml, Worker(chatml, list("AB D" + CALL))) as router, talking(router.target) as talk:
        await talk.start(1, spec)
        events = await talk.end_of(1)
    told = [event.WhichOneof("event") for event in events]
    assert "".join(event.text_delta.text for event in events[: told.index("tool_call_delta")]) == "AB D"
    assert "text_delta" not in told[told.index("tool_call_delta") :]
    assert events[-1].finished.finish_reason == FINISH_REASON_TOOL_CALLS


DEEP = '{"not": ' * 33 + "{}" + "}" * 33
SCHEMA = f'{{"type": "object", "properties": {{"a": {{"maxLength": 42, "const": 9007199254740993}}, "b": {DEEP}}}}}'


async def test_schemas_arrive_as_they_were_sent(chatml: Path) -> None:
    """42 is not 42.0, large numbers are not rounded, and 33 levels are not too deep: in prompt and guide, by any door (fault 59)."""
    worker = Worker(chatml)
    spec = TurnSpec(messages=[ask()], tools=[Tool(name="a", parameters_json=SCHEMA)])
    forced = TurnSpec(tool_choice=ToolChoice(mode=TOOL_MODE_REQUIRED))
    forced.MergeFrom(spec)
    async with run_bench(chatml, worker) as router, router.stub() as stub:
        await stub.Complete(CompleteRequest(spec=spec))
        table = Tokenizer.load(chatml).token_bytes
        assert SCHEMA in b"".join(table[token] for token in worker.engine.requests[-1].prompt).decode()
        await stub.Complete(CompleteRequest(spec=forced))
        tools = [{"type": "function", "function": {"name": "a", "parameters": json.loads(SCHEMA)}}]
        async with connect(router.http) as caller:
            for choice in ("auto", "required"):
                assert (await caller.ask(value=chat(f"{CANARY} go", tools=tools, tool_choice=choice))).status == 200
    asked = [(it.prompt, it.guide) for it in worker.engine.requests]
    assert asked[2:] == asked[:2]
    guide = asked[1][1]
    assert guide is not None
    assert SCHEMA in guide.text


TOO_MUCH = {
    "tools": ([Tool(name=f"t{at}") for at in range(5000)], "tools"),
    "text": ([Tool(name="a", description="x" * 3_000_000)], "tools"),
    "levels": ([Tool(name="a", parameters_json='{"a":' * 20_000)], "tools[0].parameters_json"),
    "brackets": ([Tool(name="a", parameters_json="[" * 200_000)], "tools[0].parameters_json"),
}


@pytest.mark.parametrize("case", TOO_MUCH)
async def test_too_many_tools_are_refused_by_name(chatml: Path, case: str) -> None:
    """In number, length and depth, quickly, and before any worker (fault 73)."""
    tools, field = TOO_MUCH[case]
    worker = Worker(chatml)
    async with run_bench(chatml, worker) as router, router.stub() as stub:
        error = await failure_of(stub.Complete(CompleteRequest(spec=TurnSpec(messages=[ask()], tools=tools))))
        assert (error.code, error.reason, list(error.fields)) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID", [field])
        assert worker.calls == 0


async def test_a_schema_that_no_engine_can_compile_is_told_by_its_tool(chatml: Path) -> None:
    """The caller asked for no response format; the words name the tool and the place in its schema."""

    def refuse(request: Request) -> list[Item]:
        return [End(Finish.REFUSED, 'guided_decoding_guide: #/$defs/a/properties/x: "foo" is not supported')]

    spec = TurnSpec(messages=[ask()], tools=TOOLS, tool_choice=ToolChoice(tool="a"))
    async with run_bench(chatml, Worker(chatml, refuse)) as router, router.stub() as stub:
        error = await failure_of(stub.Complete(CompleteRequest(spec=spec)))
    assert (error.reason, list(error.fields)) == ("GUIDE_INVALID", ["tools"])
    assert "#/$defs/a/properties/x" in error.message

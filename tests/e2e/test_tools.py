"""Tool calling with the real model, which was not trained for it: what is forced is held to the form, and the turn goes on with results."""

from __future__ import annotations

import json

import pytest
from tidegate import user
from tidegate.v1.event_pb2 import FINISH_REASON_TOOL_CALLS
from tidegate.v1.turn_pb2 import TOOL_MODE_REQUIRED, ResponseFormat, Sampling, Tool, ToolChoice, TurnSpec

from server.stack import Stack
from tests.bench.talk import calls_in, talking, text_in

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "unit": {"$ref": "#/$defs/unit"}},
    "required": ["city", "unit"],
    "$defs": {"unit": {"enum": ["celsius", "fahrenheit"]}},
}
TOOLS = [
    Tool(name="get_weather", description="Tells the weather in a city.", parameters_json=json.dumps(WEATHER)),
    Tool(name="get_time", description="Tells the time."),
]


@pytest.mark.parametrize("count", [1, pytest.param(8, marks=pytest.mark.slow)])
async def test_a_small_model_makes_valid_calls_and_goes_on_with_the_result(stack: Stack, count: int) -> None:
    """Hot as it is, every forced call is of an offered tool and has arguments of its schema; with the result the turn goes on."""
    async with talking(stack.router) as talk:
        for turn in range(1, count + 1):
            choice = ToolChoice(mode=TOOL_MODE_REQUIRED) if turn % 2 else ToolChoice(tool="get_weather")
            spec = TurnSpec(messages=[user("What is the weather in Paris?")], tools=TOOLS, tool_choice=choice, max_output_tokens=48)
            spec.sampling.CopyFrom(Sampling(temperature=1.2, seed=turn))
            await talk.start(turn, spec)
        for turn in range(1, count + 1):
            events = await talk.end_of(turn)
            (call,) = calls_in(events)
            assert (events[-1].finished.finish_reason, text_in(events)) == (FINISH_REASON_TOOL_CALLS, "")
            _check(call.name, json.loads(call.arguments_json))
        await talk.give(turn, **{call.id: json.dumps({"weather": "sunny", "degrees": 21})})
        events = await talk.end_of(turn)
    assert text_in(events) or calls_in(events)


FORM = {"type": "object", "properties": {"weather": {"enum": ["Größe", "müde"]}}, "required": ["weather"]}


async def test_with_tools_a_hot_answer_is_a_valid_call_or_has_the_form(stack: Stack) -> None:
    """One or the other, whatever the model would rather say."""
    wanted = ResponseFormat(json_schema=json.dumps(FORM))
    async with talking(stack.router) as talk:
        for turn in range(1, 9):
            spec = TurnSpec(messages=[user("What is the weather?")], tools=TOOLS, response_format=wanted, max_output_tokens=64)
            spec.sampling.CopyFrom(Sampling(temperature=1.2, seed=turn))
            await talk.start(turn, spec)
        for turn in range(1, 9):
            events = await talk.end_of(turn)
            calls = calls_in(events)
            if calls:
                assert (len(calls), text_in(events), events[-1].finished.finish_reason) == (1, "", FINISH_REASON_TOOL_CALLS)
                _check(calls[0].name, json.loads(calls[0].arguments_json))
            else:
                assert json.loads(text_in(events))["weather"] in ("Größe", "müde")


def _check(name: str, arguments: dict[str, object]) -> None:
    assert name in ("get_weather", "get_time")
    if name == "get_weather":
        assert set(arguments) == {"city", "unit"}
        assert arguments["unit"] in ("celsius", "fahrenheit")
    else:
        assert arguments == {}

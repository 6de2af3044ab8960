"""What the tools of a turn mean for its prompt and its guide."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from router.model import Guide, GuideKind, Message, Role, TurnRequest
from router.text.call_format import HERMES, LLAMA
from router.text.tools import Offer, describe, guide_call, offer_tools
from router.tools import Tool, ToolChoice, ToolMode
from server.engine.base import Guide as EngineGuide
from server.engine.base import GuideKind as EngineGuideKind
from server.guides import compile_guide
from tests.unit.server.guides.derivation import compile_rules, matches

CITY = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'
LOOK, GO = Tool("look", "Looks.", CITY), Tool("go")
TURN = TurnRequest("", [Message(Role.USER, "hi")], tools=[LOOK, GO])


def schema_of(*tools: Tool) -> Any:
    guide = guide_call(Offer(tools, tuple(tool.name for tool in tools)), HERMES)
    assert guide.kind is GuideKind.JSON_SCHEMA
    return json.loads(guide.text)


@pytest.mark.parametrize(
    ("choice", "forced"),
    [
        (ToolChoice(), ()),
        (ToolChoice(ToolMode.REQUIRED), ("look", "go")),
        (ToolChoice(name="go"), ("go",)),
    ],
)
def test_a_choice_says_what_may_and_what_must_be_called(choice: ToolChoice, forced: tuple[str, ...]) -> None:
    """The model is told of all tools, also when it must call a certain one."""
    offer = offer_tools(replace(TURN, tool_choice=choice))
    assert offer == Offer((LOOK, GO), forced)
    assert offer
    assert offer.callable == (forced or ("look", "go"))


def test_without_tools_or_with_none_chosen_nothing_is_offered() -> None:
    """The prompt does not tell of tools that the model may not call."""
    assert offer_tools(replace(TURN, tools=[])) is None
    assert offer_tools(replace(TURN, tool_choice=ToolChoice(ToolMode.NONE))) is None


def test_parallel_calls_are_the_callers_choice() -> None:
    """Which the parser is told."""
    assert offer_tools(replace(TURN, parallel_tool_calls=False)) == Offer((LOOK, GO), parallel=False)


def test_tools_are_described_as_templates_expect() -> None:
    """Each field is there, for templates that write it unasked; a tool without parameters has an empty object of them."""
    empty = {"type": "object", "properties": {}}
    assert describe(Offer((LOOK, GO))) == [
        {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": json.loads(CITY)}},
        {"type": "function", "function": {"name": "go", "description": "", "parameters": empty}},
    ]


def test_a_forced_call_names_its_tool_and_has_its_arguments() -> None:
    """One option for each tool, name first, and the schemas under the tools' names."""
    schema = schema_of(LOOK, GO)
    assert [option["properties"]["name"] for option in schema["anyOf"]] == [{"const": "look"}, {"const": "go"}]
    assert list(schema["anyOf"][0]["properties"]) == ["name", "arguments"]
    assert schema["$defs"]["look"] == json.loads(CITY)
    assert schema["$defs"]["go"] == {"type": "object", "properties": {}, "additionalProperties": False}


def test_arguments_have_the_name_that_the_model_knows() -> None:
    """Llama calls them parameters."""
    guide = guide_call(Offer((LOOK,), ("look",)), LLAMA)
    assert list(json.loads(guide.text)["anyOf"][0]["properties"]) == ["name", "parameters"]


def test_only_the_tool_that_must_be_called_is_in_the_guide() -> None:
    """The others cost the engine nothing."""
    guide = guide_call(Offer((LOOK, GO), ("go",)), HERMES)
    assert list(json.loads(guide.text)["$defs"]) == ["go"]


def test_a_schemas_references_go_with_it() -> None:
    """They point into the tool's own schema; properties that are called $ref are none."""
    parameters = {
        "$id": "https://example.com/look",
        "type": "object",
        "properties": {"$ref": {"type": "string"}, "next": {"$ref": "#"}, "at": {"anyOf": [{"$ref": "#/$defs/place"}]}},
        "$defs": {"place": {"type": "string"}},
    }
    (schema,) = schema_of(Tool("look", parameters=json.dumps(parameters)))["$defs"].values()
    assert schema["properties"]["$ref"] == {"type": "string"}
    assert schema["properties"]["next"] == {"$ref": "#/$defs/look"}
    assert schema["properties"]["at"] == {"anyOf": [{"$ref": "#/$defs/look/$defs/place"}]}
    assert "$id" not in schema


FORM = json.dumps(
    {
        "$id": "x",
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/Größe"}},
        "required": ["at"],
        "$defs": {"Größe": {"enum": ["müde"]}},
    }
)


def test_an_answer_may_be_a_call_or_have_a_form() -> None:
    """Any offered tool's call, with its own arguments, or what the form allows, and nothing else; the form keeps its references."""
    guide = guide_call(Offer((LOOK, GO)), HERMES, Guide(GuideKind.JSON_SCHEMA, FORM))
    rules = compile_rules(EngineGuideKind.JSON_SCHEMA, guide.text)
    for answer in ('{"at":"müde"}', '{"name":"look","arguments":{"city":"Oslo"}}', '{"name":"go","arguments":{}}'):
        assert matches(rules, answer), answer
    for answer in ('{"at":"wach"}', '{"name":"look","arguments":{}}', '{"name":"stay","arguments":{}}', "{}", "Hello"):
        assert not matches(rules, answer), answer


def test_an_answer_may_be_a_call_or_any_object() -> None:
    """Where the form is any JSON object."""
    rules = compile_rules(EngineGuideKind.JSON_SCHEMA, guide_call(Offer((GO,)), HERMES, Guide(GuideKind.JSON)).text)
    assert matches(rules, '{"name":"go","arguments":{}}')
    assert matches(rules, '{"a":[1]}')
    assert not matches(rules, "[1]")


def test_our_workers_compile_the_guide() -> None:
    """With references, nesting, and tools without parameters."""
    nested = {"type": "object", "properties": {"at": {"$ref": "#/$defs/place"}}, "$defs": {"place": {"enum": ["here", "there"]}}}
    offer = Offer((LOOK, GO, Tool("far", parameters=json.dumps(nested))), ("look", "go", "far"))
    grammar = compile_guide(EngineGuide(EngineGuideKind.JSON_SCHEMA, guide_call(offer, HERMES).text))
    for part in ("look", "go", "far", "here", "there", "city"):
        assert part in grammar

"""What a turn's tools must satisfy; each fault names its field."""

from __future__ import annotations

from dataclasses import replace

import pytest

from router.config import Limits
from router.model import Guide, GuideKind, Message, Role, TurnRequest
from router.tool_checks import MAX_CHARS, MAX_DEPTH, MAX_TOOLS, check_tools
from router.tools import Tool, ToolChoice, ToolMode

LIMITS = Limits(max_guide_chars=100)
TURN = TurnRequest("", [Message(Role.USER, "hi")])
LOOK = Tool("look")


def fields_of(request: TurnRequest) -> list[str]:
    return [violation.field for violation in check_tools(request, LIMITS)]


@pytest.mark.parametrize("name", ["a", "get_weather", "A-1", "x" * 64])
def test_good_names(name: str) -> None:
    """Letters, digits, underscores and hyphens."""
    assert fields_of(replace(TURN, tools=[Tool(name)])) == []


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "a.b", "é", "a\n", '"', "<|im_end|>"])
def test_bad_names(name: str) -> None:
    """What the grammar of a call, a caller's code or a log might stumble over."""
    assert fields_of(replace(TURN, tools=[LOOK, Tool(name)])) == ["tools[1].name"]


def test_names_differ() -> None:
    """Each later one is told."""
    assert fields_of(replace(TURN, tools=[LOOK, Tool("go"), LOOK, LOOK])) == ["tools[2].name", "tools[3].name"]


@pytest.mark.parametrize("parameters", ["", "{}", '{"type": "object", "properties": {"n": {"maxLength": 42}}}', '{"$ref": "#/$defs/a"}'])
def test_good_parameters(parameters: str) -> None:
    """Whether a schema can be compiled is for the worker to say, and only where a call is forced."""
    assert fields_of(replace(TURN, tools=[Tool("look", parameters=parameters)])) == []


@pytest.mark.parametrize(
    "parameters",
    [
        "{",
        "[]",
        "7",
        "null",
        '{"type": "string"}',
        '{"a": NaN}',
        "[" * 100_000,
        '{"a":' * 65 + "{}" + "}" * 65,
        '{"a": ' + "1" * 5000 + "}",
    ],
)
def test_bad_parameters(parameters: str) -> None:
    """Not JSON, not the schema of an object, or nested too deeply."""
    assert fields_of(replace(TURN, tools=[Tool("look", parameters=parameters)])) == ["tools[0].parameters_json"]


def test_the_depth_limit_itself_is_allowed() -> None:
    """33 levels, which is as deep as a protobuf Struct goes, are no limit."""
    assert MAX_DEPTH > 33
    parameters = '{"a":' * (MAX_DEPTH - 1) + "{}" + "}" * (MAX_DEPTH - 1)
    assert fields_of(replace(TURN, tools=[Tool("look", parameters=parameters)])) == []


def test_tools_are_bounded() -> None:
    """In number and in characters, whatever else is wrong with them."""
    assert fields_of(replace(TURN, tools=[Tool(f"t{at}") for at in range(MAX_TOOLS)])) == []
    assert fields_of(replace(TURN, tools=[Tool("")] * (MAX_TOOLS + 1))) == ["tools"]
    assert fields_of(replace(TURN, tools=[Tool("a", "x" * (MAX_CHARS - 1))])) == []
    assert fields_of(replace(TURN, tools=[Tool("a", "x" * MAX_CHARS)])) == ["tools"]


@pytest.mark.parametrize(
    ("choice", "fields"),
    [
        (ToolChoice(), []),
        (ToolChoice(ToolMode.NONE), []),
        (ToolChoice(ToolMode.REQUIRED), []),
        (ToolChoice(name="look"), []),
        (ToolChoice(None), ["tool_choice.mode"]),
        (ToolChoice(name="go"), ["tool_choice.tool"]),
        (ToolChoice(None, "look"), []),
    ],
)
def test_choices(choice: ToolChoice, fields: list[str]) -> None:
    """A mode must be known, and a tool be there; a name needs no mode."""
    assert fields_of(replace(TURN, tools=[LOOK], tool_choice=choice)) == fields


def test_without_tools_none_can_be_required() -> None:
    """Other modes mean nothing then."""
    assert fields_of(replace(TURN, tool_choice=ToolChoice(ToolMode.REQUIRED))) == ["tool_choice.mode"]
    assert fields_of(replace(TURN, tool_choice=ToolChoice(name="look"))) == ["tool_choice.tool"]
    assert fields_of(replace(TURN, tool_choice=ToolChoice(ToolMode.NONE))) == []


@pytest.mark.parametrize("choice", [ToolChoice(), ToolChoice(ToolMode.REQUIRED), ToolChoice(name="look"), ToolChoice(ToolMode.NONE)])
def test_a_form_beside_tools_is_one_of_json(choice: ToolChoice) -> None:
    """An answer is a call or has the form, and one schema says so; where the model may call nothing, any form will do."""
    turn = replace(TURN, tools=[LOOK], tool_choice=choice)
    any_form = [] if choice.mode is ToolMode.NONE and not choice.name else ["response_format"]
    for guide in (Guide(GuideKind.JSON), Guide(GuideKind.JSON_SCHEMA, '{"type": "null"}')):
        assert fields_of(replace(turn, guide=guide)) == []
    for kind, text in (
        (GuideKind.REGEX, "a"),
        (GuideKind.GRAMMAR, 'root ::= "a"'),
        (GuideKind.JSON_SCHEMA, "{"),
        (GuideKind.JSON_SCHEMA, "[" * 70),
    ):
        assert fields_of(replace(turn, guide=Guide(kind, text))) == any_form
    assert fields_of(replace(turn, tools=[], tool_choice=ToolChoice(), guide=Guide(GuideKind.REGEX, "a"))) == []


def test_a_form_and_the_tools_beside_it_must_fit_into_a_guide() -> None:
    """All tools count, for any of them may be called; a form that a forced call takes the place of does not."""
    turn = replace(TURN, tools=[Tool("small", parameters="{" + " " * 50 + "}")], guide=Guide(GuideKind.JSON_SCHEMA, "{" + " " * 50 + "}"))
    assert fields_of(turn) == ["tools"]
    assert fields_of(replace(turn, guide=Guide(GuideKind.JSON))) == []
    assert fields_of(replace(turn, tool_choice=ToolChoice(ToolMode.REQUIRED))) == []


def test_what_must_be_called_must_fit_into_a_guide() -> None:
    """Other tools do not count."""
    large, small = Tool("large", parameters="{" + " " * 100 + "}"), Tool("small", parameters="{" + " " * 50 + "}")
    both = replace(TURN, tools=[large, small])
    assert fields_of(both) == []
    assert fields_of(replace(both, tool_choice=ToolChoice(name="small"))) == []
    assert fields_of(replace(both, tool_choice=ToolChoice(name="large"))) == ["tools"]
    assert fields_of(replace(both, tool_choice=ToolChoice(ToolMode.REQUIRED))) == ["tools"]

"""Functions as tools: what the model is told of them, and of their results."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from tidegate import Tool, ToolFailed
from tidegate.functions import Function, describe_tool, read_function


@dataclass
class Weather:
    city: str
    degrees: float


async def weather(city: Annotated[str, "name of the city"], days: int = 1) -> Weather:
    """The weather
    of a city.

    Not for the model.
    """
    return Weather(city, 20.0 + days)


def broken() -> str:
    raise OSError("a secret path")


def refusing() -> str:
    raise ToolFailed("only on weekdays")


async def run(function: Function, arguments: str) -> Any:
    return json.loads(await read_function(function).run(arguments))


def test_a_function_is_described_by_its_hints() -> None:
    """Name, first paragraph of the docstring, and a schema in which parameters with defaults may be left out."""
    tool = describe_tool(weather)
    assert (tool.name, tool.description) == ("weather", "The weather\nof a city.")
    assert json.loads(tool.parameters_json) == {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "name of the city"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    }


def test_a_description_is_taken_as_it_is() -> None:
    """For tools that somebody else carries out; the tools loop cannot."""
    tool = Tool(name="elsewhere")
    assert describe_tool(tool) is tool
    with pytest.raises(TypeError, match="carried out by a function"):
        read_function(tool)


def test_parameters_without_names_are_refused() -> None:
    """A model gives arguments by name."""
    with pytest.raises(TypeError, match="rest cannot be"):
        read_function(lambda *rest: rest)


async def test_results_are_json_or_text() -> None:
    """Dataclasses too; a plain function is called in a thread, its text goes as it is."""
    assert await run(weather, '{"city": "Paris", "days": 2}') == {"city": "Paris", "degrees": 22.0}
    assert await read_function(lambda: "só").run("") == "só"
    assert await run(lambda: [1, None], "{}") == [1, None]


async def test_the_model_learns_what_was_wrong_with_its_arguments() -> None:
    """So that it can do better."""
    assert await run(weather, '{"city": 3}') == {"error": "arguments.city: must be of type string"}
    assert await run(weather, "{}") == {"error": "arguments.city: is missing"}
    assert await run(weather, "{") == {"error": "arguments: must be JSON"}


async def test_the_model_learns_of_failures_only_what_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The words of an exception may hold secrets: they are for the log. ToolFailed is for the model."""
    with caplog.at_level(logging.CRITICAL, "tidegate.tools"):
        assert await run(broken, "") == {"error": "the tool failed"}
        assert await run(refusing, "") == {"error": "only on weekdays"}
        assert await run(object, "") == {"error": "the tool failed"}

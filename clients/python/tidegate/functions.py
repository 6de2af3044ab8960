"""Functions as tools: their type hints are the schema, the first paragraph of their docstring is the description."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from tidegate.shapes import Record, ShapeWrong, write_schema
from tidegate.v1.turn_pb2 import Tool

Function = Callable[..., Any]
"""A function that a model may call; asynchronous, or plain, which is run in a thread."""

log = logging.getLogger("tidegate.tools")


class ToolFailed(Exception):
    """Raised by a tool to tell the model what went wrong. Of other exceptions it learns only that the tool failed."""


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function, and what a model must know to call it."""

    function: Function
    name: str
    description: str
    parameters: Record

    def describe(self) -> Tool:
        """The tool as the router takes it."""
        return Tool(name=self.name, description=self.description, parameters_json=json.dumps(write_schema(self.parameters)))

    async def run(self, arguments_json: str) -> str:
        """What the model is told: the result as JSON, a text as it is, or what went wrong."""
        try:
            arguments = self.parameters.read(json.loads(arguments_json or "{}"), "arguments")
            return write_result(await self._call(arguments))
        except (ToolFailed, ShapeWrong) as fault:
            return json.dumps({"error": str(fault)})
        except json.JSONDecodeError:
            return json.dumps({"error": "arguments: must be JSON"})
        except Exception:
            log.exception("tool %s failed", self.name)
            return json.dumps({"error": "the tool failed"})

    async def _call(self, arguments: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self.function):
            return await self.function(**arguments)
        return await asyncio.to_thread(self.function, **arguments)


def read_function(function: Tool | Function) -> FunctionTool:
    """A function as a tool. Raises TypeError for a tool without a function, and for parameters that JSON cannot give."""
    if isinstance(function, Tool):
        raise TypeError("a tool's calls are carried out by a function; this is only a description of one")
    parameters = inspect.signature(function).parameters.values()
    if loose := [p.name for p in parameters if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]:
        raise TypeError(f"a tool's parameters are given by name; {loose[0]} cannot be")
    hints = get_type_hints(function, include_extras=True)
    needed = [p.name for p in parameters if p.default is p.empty]
    shape = Record(function.__name__, {p.name: hints.get(p.name, Any) for p in parameters}, needed, dict)
    return FunctionTool(function, function.__name__, (inspect.getdoc(function) or "").partition("\n\n")[0], shape)


def describe_tool(tool: Tool | Function) -> Tool:
    """A tool as the router takes it."""
    return tool if isinstance(tool, Tool) else read_function(tool).describe()


def write_result(value: Any) -> str:
    """A function's result as text."""
    return value if isinstance(value, str) else json.dumps(value, default=_write_object, ensure_ascii=False)


def _write_object(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"a tool gave a {type(value).__name__}, which is no JSON")

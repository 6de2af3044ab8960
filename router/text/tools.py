"""The tools of one turn: how a chat template is told of them, and the guide that holds the model to a call, or to a call or a form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from router.model import Guide, GuideKind, TurnRequest
from router.text.call_format import CallFormat
from router.tools import Tool, ToolMode

_WANTED = "#/$defs/response.format"
"""Where the form of an answer stands; no tool has such a name."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What the model may call; the names of the tools of which it must call one, or none; and whether it may call several."""

    tools: tuple[Tool, ...]
    forced: tuple[str, ...] = ()
    parallel: bool = True

    @property
    def callable(self) -> tuple[str, ...]:
        """Names of the tools that a call in the answer may have."""
        return self.forced or tuple(tool.name for tool in self.tools)


def offer_tools(request: TurnRequest) -> Offer | None:
    """The offer of a turn that has been checked; None if the model may call nothing, and then it is not told of tools."""
    choice = request.tool_choice
    if not request.tools or (choice.mode is ToolMode.NONE and not choice.name):
        return None
    tools = tuple(request.tools)
    if choice.name:
        return Offer(tools, (choice.name,))
    forced = tuple(tool.name for tool in tools) if choice.mode is ToolMode.REQUIRED else ()
    return Offer(tools, forced, request.parallel_tool_calls)


def describe(offer: Offer) -> list[dict[str, Any]]:
    """The tools in the form that Hugging Face's chat templates expect."""
    return [{"type": "function", "function": _describe(tool)} for tool in offer.tools]


def guide_call(offer: Offer, form: CallFormat, wanted: Guide | None = None) -> Guide:
    """The guide for one call, behind what `form` begins a forced one with. A tool's own schema stands in it as `#/$defs/NAME`.

    `wanted` is the form of an answer that is no call; it must be JSON. A call begins without its opening then, as answers may.
    """
    schemas = {tool.name: _schema_of(tool) for tool in offer.tools if tool.name in offer.callable}
    options = [_call_schema(name, form.arguments) for name in schemas]
    definitions = {name: _move(_close(schema), f"#/$defs/{name}") for name, schema in schemas.items()}
    if wanted is not None:
        options.append({"$ref": _WANTED})
        definitions[_WANTED.rpartition("/")[2]] = _move(_schema_of_form(wanted), _WANTED)
    return Guide(GuideKind.JSON_SCHEMA, json.dumps({"anyOf": options, "$defs": definitions}))


def _describe(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": _schema_of(tool)}


def _schema_of(tool: Tool) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(tool.parameters) if tool.parameters else {"type": "object", "properties": {}}
    return schema


def _schema_of_form(wanted: Guide) -> Any:
    schema = json.loads(wanted.text) if wanted.kind is GuideKind.JSON_SCHEMA else {"type": "object"}
    return _without_id(schema) if isinstance(schema, dict) else schema


def _call_schema(name: str, arguments: str) -> dict[str, Any]:
    properties = {"name": {"const": name}, arguments: {"$ref": f"#/$defs/{name}"}}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _close(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema for a guide: no `$id`, which may stand at the root only, and no invented arguments for a tool that has none."""
    closed = {"additionalProperties": False} if schema.get("properties") == {} else {}
    return {**closed, **_without_id(schema)}


def _without_id(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "$id"}


def _move(schema: Any, root: str) -> Any:
    """The schema with its references into itself going to its new place."""
    if isinstance(schema, Mapping):
        return {key: _move_reference(value, root) if key == "$ref" else _move(value, root) for key, value in schema.items()}
    return [_move(item, root) for item in schema] if isinstance(schema, list) else schema


def _move_reference(target: Any, root: str) -> Any:
    return root + target[1:] if isinstance(target, str) and target.startswith("#") else _move(target, root)

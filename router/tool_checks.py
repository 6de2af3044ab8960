"""What a turn's tools must satisfy, and how they go together with the rest of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from router.config import Limits
from router.errors import Violation
from router.model import Guide, GuideKind, TurnRequest
from router.tools import Tool, ToolMode

MAX_TOOLS = 128
MAX_CHARS = 256 * 1024
"""Of all tools of a turn together."""
MAX_DEPTH = 64

_TOO_DEEP = f"must be nested at most {MAX_DEPTH} deep"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_tools(request: TurnRequest, limits: Limits) -> Iterator[Violation]:
    """What is wrong with them, with the fields' paths."""
    tools = request.tools
    if len(tools) > MAX_TOOLS:
        yield Violation("tools", f"must hold at most {MAX_TOOLS} tools")
    elif sum(len(tool.name) + len(tool.description) + len(tool.parameters) for tool in tools) > MAX_CHARS:
        yield Violation("tools", f"must have at most {MAX_CHARS} characters in all")
    else:
        yield from _check_each(tools)
    yield from _check_choice(request)
    yield from _check_forms(request, limits)


def _check_each(tools: Sequence[Tool]) -> Iterator[Violation]:
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if not _NAME.fullmatch(tool.name):
            yield Violation(f"tools[{index}].name", "must have from 1 to 64 letters, digits, underscores and hyphens")
        elif tool.name in names:
            yield Violation(f"tools[{index}].name", "must differ from the names of the other tools")
        names.add(tool.name)
        if fault := _find_schema_fault(tool.parameters):
            yield Violation(f"tools[{index}].parameters_json", fault)


def _find_schema_fault(text: str) -> str:
    if not text:
        return ""
    fault, schema = _load(text)
    if not fault and (not isinstance(schema, dict) or schema.get("type", "object") != "object"):
        return "must be the JSON schema of an object"
    return fault


def _load(text: str) -> tuple[str, Any]:
    """What is wrong with a schema's text, or else the schema."""
    try:
        schema = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        return _TOO_DEEP, None
    except ValueError:
        return "must be JSON", None
    return _TOO_DEEP if _is_deeper(schema, MAX_DEPTH) else "", schema


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _is_deeper(value: Any, depth: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth < 0 or any(_is_deeper(item, depth - 1) for item in inner)


def _check_choice(request: TurnRequest) -> Iterator[Violation]:
    choice = request.tool_choice
    if choice.name and choice.name not in [tool.name for tool in request.tools]:
        yield Violation("tool_choice.tool", "must be the name of one of the tools")
    elif not choice.name and choice.mode is None:
        yield Violation("tool_choice.mode", "must be a known mode")
    elif choice.mode is ToolMode.REQUIRED and not request.tools:
        yield Violation("tool_choice.mode", "a call can be required only where there are tools")


def _check_forms(request: TurnRequest, limits: Limits) -> Iterator[Violation]:
    """A call is a form. One that is forced goes before the form asked for; else the answer has either of them, and one guide says so."""
    choice, most = request.tool_choice, limits.max_guide_chars
    if not request.tools or (choice.mode is ToolMode.NONE and not choice.name):
        return
    if request.guide is not None and (fault := _find_form_fault(request.guide)):
        yield Violation("response_format", f"{fault} where tools are offered, unless tool_choice is none")
    forced = choice.name or choice.mode is ToolMode.REQUIRED
    bound = [it for it in request.tools if it.name == choice.name or not choice.name] if forced or request.guide else []
    form = request.guide.text if request.guide and not forced else ""
    if sum(len(tool.parameters) for tool in bound) + len(form) > most:
        yield Violation(
            "tools", f"those that a guide holds must have at most {most} characters of parameters in all, with the response format"
        )


def _find_form_fault(guide: Guide) -> str:
    if guide.kind not in (GuideKind.JSON, GuideKind.JSON_SCHEMA):
        return "must be of JSON"
    return _load(guide.text)[0] if guide.kind is GuideKind.JSON_SCHEMA else ""

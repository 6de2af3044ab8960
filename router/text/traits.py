"""What a chat template can take, found out once from a few probe conversations when the model is loaded.

Templates differ in where they allow system messages, in whether missing content may be null, in whether a tool call's arguments are an
object or JSON text, and in how they write tools and calls, if at all. Some raise, some print `None`, some leave text out; so a probe looks
at what was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from router.text.call_format import FORMATS, CallFormat

Messages = list[dict[str, Any]]
Tools = list[dict[str, Any]]


class TemplateRefused(Exception):
    """The model's chat template cannot take this conversation. The message says why in the template's words, never in the caller's."""


class SystemPlace(Enum):
    """Where a template writes system messages."""

    ANYWHERE = "anywhere"
    FIRST = "first"
    NOWHERE = "nowhere"


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """What one template takes.

    null_content:     null beside tool calls prints nothing.
    object_arguments: arguments are objects, else JSON text.
    writes_calls:     tool calls of the conversation are written, in whatever way.
    parallel_calls:   several in one message, too.
    calls:            the way, if it is a known one, and tools are written as well.
    """

    system: SystemPlace = SystemPlace.ANYWHERE
    null_content: bool = False
    object_arguments: bool = True
    writes_calls: bool = True
    parallel_calls: bool = True
    calls: CallFormat | None = None


class Fill(Protocol):
    """Renders messages and tools. Raises TemplateRefused."""

    def __call__(self, messages: Messages, *, tools: Tools | None = None) -> str: ...


def probe_template(fill: Fill) -> TemplateTraits:
    """What the template that `fill` renders takes."""

    def write(messages: Messages, tools: Tools | None = None) -> str | None:
        try:
            return fill(messages, tools=tools)
        except TemplateRefused:
            return None

    places = (place for place, messages in _SYSTEM_PROBES.items() if _has_all_in_order(write(messages), messages))
    as_object = write(_call_tool("", {"probe": 1}))
    object_arguments = as_object is not None and "{'probe'" not in as_object
    arguments = {"probe": 1} if object_arguments else '{"probe": 1}'
    with_text, with_null = write(_call_tool("", arguments)), write(_call_tool(None, arguments))
    null_content = with_text is not None and with_null is not None and _count_nulls(with_null) == _count_nulls(with_text)
    writes_calls = with_text is not None and with_text != write(_call_tool("", arguments, count=0))
    parallel_calls = write(_call_tool("", arguments, count=2)) is not None
    writes_tools = "probe-tool" in (write(_converse("user"), [_TOOL]) or "")
    calls = next((form for form in FORMATS if writes_tools and form.written.search(with_text or "")), None)
    return TemplateTraits(next(places, SystemPlace.NOWHERE), null_content, object_arguments, writes_calls, parallel_calls, calls)


def _has_all_in_order(text: str | None, messages: Messages) -> bool:
    places = [-1 if text is None else text.find(message["content"]) for message in messages]
    return min(places) >= 0 and places == sorted(places)


def _count_nulls(text: str) -> int:
    return text.count("None") + text.count("null")


def _converse(*roles: str) -> Messages:
    return [{"role": role, "content": f"probe-{index}"} for index, role in enumerate(roles)]


def _call_tool(content: str | None, arguments: Any, *, count: int = 1) -> Messages:
    ids = [f"probe000{index}" for index in range(count)]
    calls = [{"id": id, "type": "function", "function": {"name": "probe", "arguments": arguments}} for id in ids]
    answers = [{"role": "tool", "content": "probe", "name": "probe", "tool_call_id": id} for id in ids or ["probe0000"]]
    called = {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})
    return [*_converse("user"), called, *answers]


_SYSTEM_PROBES = {
    SystemPlace.ANYWHERE: _converse("system", "system", "user", "assistant", "system", "user"),
    SystemPlace.FIRST: _converse("system", "user"),
}
_TOOL = {
    "type": "function",
    "function": {"name": "probe-tool", "description": "probe", "parameters": {"type": "object", "properties": {}}},
}

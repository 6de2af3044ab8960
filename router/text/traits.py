"""What a chat template can take, found out once from a few probe conversations when the model is loaded.

Templates differ in where they allow system messages, in whether missing content may be null, and in whether a tool call's arguments are an
object or JSON text. Some raise, some print `None`, some leave text out; so a probe looks at what was written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

Messages = list[dict[str, Any]]


class TemplateRefused(Exception):
    """The model's chat template cannot take this conversation. The message says why in the template's words, never in the caller's."""


class SystemPlace(Enum):
    """Where a template writes system messages."""

    ANYWHERE = "anywhere"
    FIRST = "first"
    NOWHERE = "nowhere"


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """`null_content`: null beside tool calls prints nothing. `object_arguments`: arguments are objects, else JSON text."""

    system: SystemPlace = SystemPlace.ANYWHERE
    null_content: bool = False
    object_arguments: bool = True


def probe_template(fill: Callable[[Messages], str]) -> TemplateTraits:
    """`fill` renders messages and raises TemplateRefused."""

    def write(messages: Messages) -> str | None:
        try:
            return fill(messages)
        except TemplateRefused:
            return None

    places = (place for place, messages in _SYSTEM_PROBES.items() if _has_all_in_order(write(messages), messages))
    as_object = write(_call_tool("", {"probe": 1}))
    object_arguments = as_object is not None and "{'probe'" not in as_object
    arguments = {"probe": 1} if object_arguments else '{"probe": 1}'
    with_text, with_null = write(_call_tool("", arguments)), write(_call_tool(None, arguments))
    null_content = with_text is not None and with_null is not None and _count_nulls(with_null) == _count_nulls(with_text)
    return TemplateTraits(next(places, SystemPlace.NOWHERE), null_content, object_arguments)


def _has_all_in_order(text: str | None, messages: Messages) -> bool:
    places = [-1 if text is None else text.find(message["content"]) for message in messages]
    return min(places) >= 0 and places == sorted(places)


def _count_nulls(text: str) -> int:
    return text.count("None") + text.count("null")


def _converse(*roles: str) -> Messages:
    return [{"role": role, "content": f"probe-{index}"} for index, role in enumerate(roles)]


def _call_tool(content: str | None, arguments: Any) -> Messages:
    call = {"id": "probe0001", "type": "function", "function": {"name": "probe", "arguments": arguments}}
    answer = {"role": "tool", "content": "probe", "name": "probe", "tool_call_id": "probe0001"}
    return [*_converse("user"), {"role": "assistant", "content": content, "tool_calls": [call]}, answer]


_SYSTEM_PROBES = {
    SystemPlace.ANYWHERE: _converse("system", "system", "user", "assistant", "system", "user"),
    SystemPlace.FIRST: _converse("system", "user"),
}

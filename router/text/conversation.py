"""A conversation in OpenAI's form, arranged for one template.

The rules, the same for every model and every API:

* `developer` is `system`. Any role other than system, user, assistant and tool is refused.
* Content given as a list of text parts is joined by line breaks; parts of other kinds are refused.
* An assistant's missing content is the empty text; for other roles it is refused. Other fields that are null are left out.
* Arguments of tool calls given as JSON text become the object they are; none at all is `{}`.
* System messages stay where they are if the template writes several of them, wherever they stand, in their order. Else they become
  one, first, joined by a blank line. If the template has no place for it either, it begins the first user message.

What a template takes is found out once, from a few probe conversations, when the model is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

Messages = list[dict[str, Any]]


class TemplateRefused(Exception):
    """The model's chat template cannot take this conversation. The message says why in the template's words, never in the caller's."""


class SystemPlace(Enum):
    """Where a template takes system messages."""

    ANYWHERE = "anywhere"
    FIRST = "first"
    INSIDE_USER = "inside_user"


def find_system_place(fill: Callable[[Messages], str]) -> SystemPlace:
    """Probe a template; `fill` renders messages and raises TemplateRefused."""
    for place, roles in _PROBES.items():
        messages = [{"role": role, "content": f"probe-{index}"} for index, role in enumerate(roles)]
        if _writes_in_order(fill, messages):
            return place
    return SystemPlace.INSIDE_USER


def arrange_messages(messages: Sequence[Mapping[str, Any]], place: SystemPlace) -> Messages:
    """New messages that follow the rules above. Raises TemplateRefused."""
    arranged = [_arrange_message(index, message) for index, message in enumerate(messages)]
    if place is SystemPlace.ANYWHERE:
        return arranged
    system = "\n\n".join(it["content"] for it in arranged if it["role"] == "system")
    others = [it for it in arranged if it["role"] != "system"]
    if len(others) == len(arranged):
        return others
    return _system_first(system, others) if place is SystemPlace.FIRST else _system_inside_user(system, others)


def _writes_in_order(fill: Callable[[Messages], str], messages: Messages) -> bool:
    try:
        text = fill(messages)
    except TemplateRefused:
        return False
    places = [text.find(message["content"]) for message in messages]
    return min(places) >= 0 and places == sorted(places)


def _system_first(system: str, others: Messages) -> Messages:
    return [{"role": "system", "content": system}, *others]


def _system_inside_user(system: str, others: Messages) -> Messages:
    first = next((index for index, it in enumerate(others) if it["role"] == "user"), None)
    if first is None:
        return [{"role": "user", "content": system}, *others]
    merged = {**others[first], "content": f"{system}\n\n{others[first]['content']}"}
    return [*others[:first], merged, *others[first + 1 :]]


def _arrange_message(index: int, message: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in message.items() if value is not None}
    role = _ROLES.get(str(given.get("role")))
    if role is None:
        raise TemplateRefused(f"messages[{index}].role must be system, developer, user, assistant or tool")
    arranged = {**given, "role": role, "content": _text_of(index, role, given.get("content"))}
    if calls := given.get("tool_calls"):
        arranged["tool_calls"] = [_arrange_call(call) for call in calls]
    return arranged


def _text_of(index: int, role: str, content: Any) -> str:
    if content is None and role == "assistant":
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence) and all(_is_text(part) for part in content):
        return "\n".join(part["text"] for part in content)
    raise TemplateRefused(f"messages[{index}].content must be text")


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type", "text") == "text" and isinstance(part.get("text"), str)


def _arrange_call(call: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in call.items() if value is not None}
    if "function" in given:
        return {**given, "function": _arrange_call(given["function"])}
    return {**given, "arguments": _arguments_of(given.get("arguments"))}


def _arguments_of(arguments: Any) -> Any:
    """Templates write arguments with `tojson`, which would quote JSON text once more. Text that is not an object stays as it is."""
    if not arguments:
        return {}
    try:
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return arguments
    return parsed if isinstance(parsed, Mapping) else arguments


_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}

_PROBES = {
    SystemPlace.ANYWHERE: ("system", "system", "user", "assistant", "system", "user"),
    SystemPlace.FIRST: ("system", "user"),
}

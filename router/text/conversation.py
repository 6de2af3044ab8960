"""A conversation in OpenAI's form, arranged for what one template takes.

The rules, the same for every model and every API:

* `developer` is `system`. Any role other than system, user, assistant and tool is refused.
* Content given as a list of text parts is joined by line breaks; parts of other kinds are refused.
* An assistant's missing content never prints anything; for other roles it is refused. Other fields that are null are left out.
* The result of a tool call has the tool's name, from the call with its id; some templates insist on one.
* Tools, and calls and results beside them, become text (tool_text.py) unless the template has a known way for all of them. Without tools,
  calls and results become text only if the template leaves calls out.
* Arguments of tool calls are given as the object or as the JSON text that the template expects; none at all is `{}`.
* System messages stay where they are if the template writes several of them, wherever they stand, in their order. Else they become
  one, first, joined by a blank line. If the template has no place for it either, it begins the first user message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from router.text.tool_text import describe_tools, write_calls
from router.text.traits import Messages, SystemPlace, TemplateRefused, TemplateTraits


def arrange_messages(
    messages: Sequence[Mapping[str, Any]],
    traits: TemplateTraits,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> Messages:
    """New messages that follow the rules above. `tools` are for the template too if it has a way for them. Raises TemplateRefused."""
    arranged = _name_results([_arrange_message(index, message, traits) for index, message in enumerate(messages)])
    if traits.calls is None and (tools or not traits.writes_calls):
        arranged = write_calls(arranged)
    if traits.calls is None and tools:
        arranged = describe_tools(arranged, tools)
    system = [it["content"] for it in arranged if it["role"] == "system"]
    if traits.system is SystemPlace.ANYWHERE or not system:
        return arranged
    merged = "\n\n".join(system)
    others = [it for it in arranged if it["role"] != "system"]
    return _put_first(merged, others) if traits.system is SystemPlace.FIRST else _put_inside_user(merged, others)


def _name_results(messages: Messages) -> Messages:
    functions = {it.get("id"): it.get("function", it) for message in messages for it in message.get("tool_calls", ())}
    names = {id: function.get("name") for id, function in functions.items()}
    return [
        {"name": names[it["tool_call_id"]], **it} if it["role"] == "tool" and it.get("tool_call_id") in names else it for it in messages
    ]


def _put_first(system: str, others: Messages) -> Messages:
    return [{"role": "system", "content": system}, *others]


def _put_inside_user(system: str, others: Messages) -> Messages:
    first = next((index for index, it in enumerate(others) if it["role"] == "user"), None)
    if first is None:
        return [{"role": "user", "content": system}, *others]
    joined = {**others[first], "content": f"{system}\n\n{others[first]['content']}"}
    return [*others[:first], joined, *others[first + 1 :]]


def _arrange_message(index: int, message: Mapping[str, Any], traits: TemplateTraits) -> dict[str, Any]:
    given = {key: value for key, value in message.items() if value is not None}
    role = _ROLES.get(str(given.get("role")))
    if role is None:
        raise TemplateRefused(f"messages[{index}].role must be system, developer, user, assistant or tool")
    calls = given.pop("tool_calls", ())
    content = given.get("content", "" if role == "assistant" else None)
    arranged = {**given, "role": role, "content": _join_text(index, content)}
    if calls:
        arranged["tool_calls"] = [_arrange_call(call, traits) for call in calls]
        if "content" not in given and traits.null_content:
            arranged["content"] = None
    return arranged


def _join_text(index: int, content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence) and all(_is_text(part) for part in content):
        return "\n".join(part["text"] for part in content)
    raise TemplateRefused(f"messages[{index}].content must be text")


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type", "text") == "text" and isinstance(part.get("text"), str)


def _arrange_call(call: Mapping[str, Any], traits: TemplateTraits) -> dict[str, Any]:
    given = {key: value for key, value in call.items() if value is not None}
    if "function" in given:
        return {**given, "function": _arrange_call(given["function"], traits)}
    arguments = given.get("arguments") or {}
    return {**given, "arguments": _parse_object(arguments) if traits.object_arguments else _write_text(arguments)}


def _parse_object(arguments: Any) -> Any:
    """The object that JSON text stands for. Text that is cut or no object stays the text it is."""
    try:
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return arguments
    return parsed if isinstance(parsed, Mapping) else arguments


def _write_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}

"""Tools as text, for a chat template that has no place for them, or whose way of writing calls this router cannot read in an answer.

The way is that of Hermes and Qwen, which is spread most widely: tools and how to call them in a system message, calls in the assistant's
text, results in the user's. A model that was not trained for it may still follow it; one that must call is held to it by a guide.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from router.text.call_format import HERMES
from router.text.traits import Messages

_CALL = f'{HERMES.opening}\n{{"name": %s, "{HERMES.arguments}": %s}}\n{HERMES.closing}'

_SYSTEM = f"""\
# Tools

You may call these functions to help the user. Each is described by a JSON object:
<tools>
%s
</tools>

To call a function, answer with a JSON object that holds its name and its arguments, like this:
{_CALL % ('"function name"', "{arguments}")}"""


def write_calls(messages: Messages) -> Messages:
    """The conversation with its calls and their results as text. Results that follow each other are one message."""
    return [message for role, group in groupby(messages, key=lambda it: it["role"]) for message in _write_group(role, group)]


def describe_tools(messages: Messages, tools: Sequence[Mapping[str, Any]]) -> Messages:
    """The conversation with the tools behind the text of its first system message, or with one that has nothing else."""
    text = _SYSTEM % "\n".join(map(_dump, tools))
    first = next((at for at, message in enumerate(messages) if message["role"] == "system"), None)
    if first is None:
        return [{"role": "system", "content": text}, *messages]
    joined = {**messages[first], "content": f"{messages[first]['content']}\n\n{text}"}
    return [*messages[:first], joined, *messages[first + 1 :]]


def _write_group(role: str, messages: Iterable[dict[str, Any]]) -> Messages:
    if role == "tool":
        results = (f"<tool_response>\n{message['content']}\n</tool_response>" for message in messages)
        return [{"role": "user", "content": "\n".join(results)}]
    return [_write_call_text(message) if "tool_calls" in message else message for message in messages]


def _write_call_text(message: Mapping[str, Any]) -> dict[str, Any]:
    functions = [call.get("function", call) for call in message["tool_calls"]]
    calls = [_CALL % (_dump(it.get("name")), _as_json(it["arguments"])) for it in functions]
    text = "\n".join([message["content"], *calls] if message["content"] else calls)
    return {key: value for key, value in message.items() if key != "tool_calls"} | {"content": text}


def _as_json(arguments: Any) -> str:
    """Text that was no object stays the text it is."""
    return arguments if isinstance(arguments, str) else _dump(arguments)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)

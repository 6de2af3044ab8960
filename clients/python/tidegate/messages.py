"""Messages of a conversation."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.v1.turn_pb2 import ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_TOOL, ROLE_USER, Message, ToolCall


def user(text: str) -> Message:
    """A user's message."""
    return Message(role=ROLE_USER, content=text)


def system(text: str) -> Message:
    """Instructions to the model."""
    return Message(role=ROLE_SYSTEM, content=text)


def assistant(text: str, tool_calls: Iterable[ToolCall] = ()) -> Message:
    """An earlier answer of the model, with the calls that it made."""
    return Message(role=ROLE_ASSISTANT, content=text, tool_calls=tool_calls)


def tool_result(call_id: str, content: str) -> Message:
    """What a tool call gave."""
    return Message(role=ROLE_TOOL, tool_call_id=call_id, content=content)


def read_message(message: Message | str) -> Message:
    """A plain text is the user's."""
    return user(message) if isinstance(message, str) else message

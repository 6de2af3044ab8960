"""The words of tool calling: what a caller offers, and the calls that come out of an answer. Part of the domain, as model.py is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call; `parameters` is its arguments' JSON schema as JSON text, empty for none."""

    name: str
    description: str = ""
    parameters: str = ""


class ToolMode(Enum):
    """Whether the model calls tools."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools the model calls: `name`, if it is not empty, else by mode. `mode` None is one that is not known."""

    mode: ToolMode | None = ToolMode.AUTO
    name: str = ""


AUTO = ToolChoice()


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of the answer's tool call `index`; id and name come with its first piece only. Joined, `arguments` are JSON text.

    The calls are whole, and to be carried out, if the turn finishes with TOOL_CALLS, and only then.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""

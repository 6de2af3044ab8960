"""How families of models write tool calls: the table that prompts, guides and the reading of answers go by.

All of them write a call as a JSON object with the tool's name and its arguments; they differ in what stands around it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallFormat:
    """One family's way.

    opening:   stands before one or more calls; not always where an answer begins with one.
    closing:   stands after them; may be empty.
    arguments: the name that the object has for the arguments.
    forced:    how an answer begins that must be a call; the prompt ends with it.
    written:   finds the call of a tool `probe` in what a chat template of the family writes for it.
    """

    opening: str
    closing: str
    arguments: str
    forced: str
    written: re.Pattern[str]


HERMES = CallFormat(
    opening="<tool_call>",
    closing="</tool_call>",
    arguments="arguments",
    forced="<tool_call>\n",
    written=re.compile(r'<tool_call>\s*\{\s*"(?:name|arguments)":'),
)
"""Hermes, Qwen 2.5, Qwen 3 and many more; not those that write XML inside of the same tags."""

MISTRAL = CallFormat(
    opening="[TOOL_CALLS]",
    closing="",
    arguments="arguments",
    forced="[TOOL_CALLS][",
    written=re.compile(r'\[TOOL_CALLS\] ?\[\{"name": ?"probe", ?"arguments": ?\{'),
)
"""Mistral's models that list the calls in a JSON array."""

LLAMA = CallFormat(
    opening="<|python_tag|>",
    closing="",
    arguments="parameters",
    forced="",
    written=re.compile(r'\{"name": ?"probe", ?"parameters": ?\{'),
)
"""Llama 3.1 and later."""

FORMATS = (HERMES, MISTRAL, LLAMA)

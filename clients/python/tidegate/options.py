"""What a turn may be asked with."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TypedDict

from google.protobuf.duration_pb2 import Duration

from tidegate.functions import Function, describe_tool
from tidegate.messages import read_message
from tidegate.v1.turn_pb2 import (
    TOOL_MODE_AUTO,
    TOOL_MODE_NONE,
    TOOL_MODE_REQUIRED,
    Message,
    Priority,
    ResponseFormat,
    Sampling,
    Tool,
    ToolChoice,
    TurnSpec,
)

_READ_HERE = ("deadline", "max_wait", "tools", "tool_choice", "response_format")
_MODES = {"auto": TOOL_MODE_AUTO, "none": TOOL_MODE_NONE, "required": TOOL_MODE_REQUIRED}


class TurnOptions(TypedDict, total=False):
    """Options of a turn; whatever is left out is the stream's or the router's default."""

    model: str
    sampling: Sampling | None
    max_output_tokens: int | None
    min_output_tokens: int | None
    stop: Iterable[str]
    """Texts that end the answer and are no part of it."""
    response_format: ResponseFormat | None
    """The answer's form, for those that `into` cannot say."""
    tools: Iterable[Tool | Function]
    """Tools that the model may call. `run_tools` carries the calls out."""
    tool_choice: ToolChoice | str | None
    """`auto`, `none`, `required`, or the name of the tool that the model must call."""
    parallel_tool_calls: bool | None
    """Whether it may call several at once; the router's default is that it may."""
    logprobs: bool
    priority: Priority
    max_wait: float | None
    """Seconds that the turn may wait for a worker; the deadline when left out."""
    deadline: float | None
    """Seconds until the whole answer must be there; then the turn is cancelled and fails with DEADLINE_EXCEEDED."""


def build_spec(messages: Iterable[Message | str], options: TurnOptions, form: ResponseFormat | None) -> TurnSpec:
    """A turn as the router takes it. Raises ValueError for two forms of one answer."""
    if form is not None and options.get("response_format") is not None:
        raise ValueError("`into` says the answer's form; leave out `response_format`")
    given = {name: value for name, value in options.items() if name not in _READ_HERE}
    choice = options.get("tool_choice")
    max_wait = options.get("max_wait")
    if max_wait is None:
        max_wait = options.get("deadline")
    return TurnSpec(
        messages=map(read_message, messages),
        response_format=form or options.get("response_format"),
        tools=map(describe_tool, options.get("tools", ())),
        tool_choice=choice if choice is None or isinstance(choice, ToolChoice) else read_choice(choice),
        max_wait=None if max_wait is None else seconds(max_wait),
        **given,  # type: ignore[arg-type]
    )


def read_choice(text: str) -> ToolChoice:
    """Which tool the model is to call, from a word for that or a tool's name."""
    mode = _MODES.get(text)
    return ToolChoice(tool=text) if mode is None else ToolChoice(mode=mode)


def seconds(value: float) -> Duration:
    """A time as protobuf has it."""
    duration = Duration()
    duration.FromTimedelta(timedelta(seconds=value))
    return duration

"""What a turn may be asked with."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TypedDict

from google.protobuf.duration_pb2 import Duration

from tidegate.functions import Function, describe_tool
from tidegate.messages import read_message
from tidegate.v1.turn_pb2 import Message, Priority, ResponseFormat, Sampling, Tool, TurnSpec


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
    given = {name: value for name, value in options.items() if name not in ("deadline", "max_wait", "tools", "response_format")}
    max_wait = options.get("max_wait")
    if max_wait is None:
        max_wait = options.get("deadline")
    return TurnSpec(
        messages=map(read_message, messages),
        response_format=form or options.get("response_format"),
        tools=map(describe_tool, options.get("tools", ())),
        max_wait=None if max_wait is None else seconds(max_wait),
        **given,  # type: ignore[arg-type]
    )


def seconds(value: float) -> Duration:
    """A time as protobuf has it."""
    duration = Duration()
    duration.FromTimedelta(timedelta(seconds=value))
    return duration

"""What a request must satisfy before anything is spent on it. Every fault names its field; all faults of a request are told at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from router.config import Limits
from router.errors import Violation, field_invalid, prompt_too_long
from router.model import Guide, GuideKind, Message, Role, Sampling, TurnRequest
from router.tool_checks import check_tools


def check_turn(request: TurnRequest, limits: Limits) -> None:
    """Raises CallerError FIELD_INVALID with every field that is wrong, or OPTION_UNSUPPORTED."""
    violations = (
        *_check_prompt(request, limits),
        *_check_sampling(request.sampling),
        *_check_stops(request.stop, limits),
        *_check_stop_ids(request.stop_ids, limits),
        *_check_output_tokens(request.max_output_tokens, request.min_output_tokens),
        *_check_guide(request.guide, limits),
        *check_tools(request, limits),
        *_check_wait(request.max_wait_s),
    )
    if violations:
        raise field_invalid(*violations)


def check_prompt(request: TurnRequest, limits: Limits) -> None:
    """Raises CallerError FIELD_INVALID; for callers that only count tokens."""
    violations = (*_check_messages(request.messages, limits), *check_tools(request, limits))
    if violations:
        raise field_invalid(*violations)


def check_sampling(sampling: Sampling) -> None:
    """Raises CallerError FIELD_INVALID; for a stream's defaults."""
    violations = tuple(_check_sampling(sampling))
    if violations:
        raise field_invalid(*violations)


def fit_output(asked: int | None, default: int, prompt_tokens: int, room: int) -> int:
    """Most tokens the answer may have. `room` holds prompt and answer together. Raises CallerError PROMPT_TOO_LONG."""
    left = room - prompt_tokens
    if left < 1:
        raise prompt_too_long(prompt_tokens, room - 1)
    return min(default if asked is None else asked, left)


def _check_prompt(request: TurnRequest, limits: Limits) -> Iterator[Violation]:
    """Token ids are checked by the model, which knows its vocabulary."""
    if request.input_ids is not None:
        return
    yield from _check_messages(request.messages, limits) if request.text is None else _check_text(request.text)


def _check_messages(messages: Sequence[Message], limits: Limits) -> Iterator[Violation]:
    if not 1 <= len(messages) <= limits.max_messages:
        yield Violation("messages", f"must hold from 1 to {limits.max_messages} messages")
        return
    for index, message in enumerate(messages):
        yield from _check_message(f"messages[{index}]", message)


def _check_text(text: str) -> Iterator[Violation]:
    if not text:
        yield Violation("prompt", "must not be empty")


def _check_message(path: str, message: Message) -> Iterator[Violation]:
    if message.role is None:
        yield Violation(f"{path}.role", "must be set to a known role")
    if message.content is None and not (message.role is Role.ASSISTANT and message.tool_calls):
        yield Violation(f"{path}.content", "must be set, except on an assistant message with tool calls")
    if message.tool_calls and message.role is not Role.ASSISTANT:
        yield Violation(f"{path}.tool_calls", "only an assistant message may hold tool calls")


def _check_sampling(sampling: Sampling) -> Iterator[Violation]:
    for name, low, high, text in _RANGES:
        value = getattr(sampling, name)
        if value is not None and not (math.isfinite(value) and low <= value <= high):
            yield Violation(f"sampling.{name}", text)


_TINY = 1e-6
_RANGES = (
    ("temperature", 0.0, 2.0, "must be from 0 to 2"),
    ("top_p", _TINY, 1.0, "must be above 0 and at most 1"),
    ("min_p", 0.0, 1 - _TINY, "must be from 0 to below 1"),
    ("top_k", 0, 2**31 - 1, "must be from 0 to 2147483647"),
    ("repetition_penalty", _TINY, 10.0, "must be above 0 and at most 10"),
    ("presence_penalty", -2.0, 2.0, "must be from -2 to 2"),
    ("frequency_penalty", -2.0, 2.0, "must be from -2 to 2"),
)


def _check_stops(stops: Sequence[str], limits: Limits) -> Iterator[Violation]:
    if len(stops) > limits.max_stops:
        yield Violation("stop", f"must hold at most {limits.max_stops} texts")
        return
    for index, stop in enumerate(stops):
        if not 1 <= len(stop) <= limits.max_stop_chars:
            yield Violation(f"stop[{index}]", f"must have from 1 to {limits.max_stop_chars} characters")


def _check_stop_ids(stops: Sequence[Sequence[int]], limits: Limits) -> Iterator[Violation]:
    if len(stops) > limits.max_stops:
        yield Violation("stop_ids", f"must hold at most {limits.max_stops} words")
    elif not all(1 <= len(stop) <= limits.max_stop_chars for stop in stops):
        yield Violation("stop_ids", f"each word must have from 1 to {limits.max_stop_chars} tokens")


def _check_output_tokens(most: int | None, fewest: int | None) -> Iterator[Violation]:
    if most is not None and most < 1:
        yield Violation("max_output_tokens", "must be at least 1")
    elif most is not None and fewest is not None and fewest > most:
        yield Violation("min_output_tokens", "must not exceed the most tokens asked for")


def _check_wait(longest_s: float | None) -> Iterator[Violation]:
    if longest_s is not None and longest_s < 0:
        yield Violation("max_wait", "must not be negative")


def _check_guide(guide: Guide | None, limits: Limits) -> Iterator[Violation]:
    """What the text says is for the worker to compile; this only bounds it."""
    if guide is not None and guide.kind is not GuideKind.JSON and not 1 <= len(guide.text) <= limits.max_guide_chars:
        yield Violation("response_format", f"must have from 1 to {limits.max_guide_chars} characters")

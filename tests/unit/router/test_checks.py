"""What a request must satisfy: each fault names its field, and all faults are told at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.checks import check_prompt, check_sampling, check_turn, fit_output
from router.config import Limits
from router.errors import CallerError, Code
from router.model import Message, Role, Sampling, ToolCall, TurnRequest
from router.tools import Tool
from server.engine.base import Sampling as EngineSampling
from server.engine.base import check_sampling as check_engine_sampling

LIMITS = Limits(max_messages=3, max_stops=2, max_stop_chars=4)
USER = Message(Role.USER, "hi")
CALL = ToolCall("1", "look", "{}")
TURN = TurnRequest("", [USER])


def fields_of(request: TurnRequest) -> list[str]:
    """The fields that are refused, in order; none when the request passes."""
    try:
        check_turn(request, LIMITS)
    except CallerError as error:
        return [violation.field for violation in error.violations]
    return []


def test_a_plain_request_passes() -> None:
    """One user message is enough, and so is a text or ids in their place."""
    assert fields_of(TURN) == []
    assert fields_of(TurnRequest("", (), text="hi")) == []
    assert fields_of(TurnRequest("", (), input_ids=[1])) == []


@pytest.mark.parametrize(
    ("stops", "fields"),
    [([], []), ([[1]] * 2, []), ([[1]] * 3, ["stop_ids"]), ([[]], ["stop_ids"]), ([[1] * 4], []), ([[1] * 5], ["stop_ids"])],
)
def test_stops_of_ids(stops: list[list[int]], fields: list[str]) -> None:
    """As many as texts may be, and as long."""
    assert fields_of(TurnRequest("", (), input_ids=[1], stop_ids=stops)) == fields


@pytest.mark.parametrize(
    ("messages", "fields"),
    [
        ([], ["messages"]),
        ([USER] * 3, []),
        ([USER] * 4, ["messages"]),
        ([Message(None, "hi")], ["messages[0].role"]),
        ([USER, Message(Role.USER, None)], ["messages[1].content"]),
        ([Message(Role.USER, "")], []),
        ([Message(Role.ASSISTANT, None)], ["messages[0].content"]),
        ([Message(Role.ASSISTANT, None, (CALL,))], []),
        ([Message(Role.TOOL, None, tool_call_id="1")], ["messages[0].content"]),
        ([Message(Role.USER, "hi", (CALL,))], ["messages[0].tool_calls"]),
        ([Message(None, None, (CALL,))], ["messages[0].role", "messages[0].content", "messages[0].tool_calls"]),
    ],
)
def test_messages(messages: list[Message], fields: list[str]) -> None:
    """A role is required, content is unless an assistant called tools, and only an assistant calls tools; empty content is content."""
    assert fields_of(replace(TURN, messages=messages)) == fields


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("temperature", (0.0, 2.0), (-0.1, 2.1)),
        ("top_p", (0.001, 1.0), (0.0, -0.5, 1.1)),
        ("top_k", (0, 2**31 - 1), (2**31,)),
        ("repetition_penalty", (0.1, 10.0), (0.0, 10.5)),
        ("presence_penalty", (-2.0, 0.0, 2.0), (-2.1, 2.1)),
        ("frequency_penalty", (-2.0, 0.0, 2.0), (-2.1, 2.1)),
    ],
)
def test_sampling_ranges(name: str, good: tuple[float, ...], bad: tuple[float, ...]) -> None:
    """Each field has its range, ends included, and what is no finite number is in none."""
    for value in good:
        assert fields_of(replace(TURN, sampling=sampling_of(name, value))) == []
    for value in (*bad, float("nan"), float("inf"), float("-inf")):
        assert fields_of(replace(TURN, sampling=sampling_of(name, value))) == [f"sampling.{name}"]


def test_an_empty_text_is_no_prompt() -> None:
    """A model cannot go on from nothing."""
    assert fields_of(TurnRequest("", (), text="")) == ["prompt"]


@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_every_seed_passes(seed: int) -> None:
    """The wire type is its range."""
    assert fields_of(replace(TURN, sampling=Sampling(seed=seed))) == []


@pytest.mark.parametrize(
    ("stops", "fields"),
    [
        (["a", "bcde"], []),
        (["a", "b", "c"], ["stop"]),
        (["", "abcde"], ["stop[0]", "stop[1]"]),
        (["🔥🔥🔥🔥"], []),
    ],
)
def test_stops(stops: list[str], fields: list[str]) -> None:
    """Stops are limited in number and in characters, not bytes, and none is empty."""
    assert fields_of(replace(TURN, stop=stops)) == fields


def test_an_answer_of_no_tokens_is_refused() -> None:
    """Zero is not "unset"."""
    assert fields_of(replace(TURN, max_output_tokens=0)) == ["max_output_tokens"]
    assert fields_of(replace(TURN, max_output_tokens=1)) == []


def test_all_faults_are_told_at_once() -> None:
    """A caller need not mend one field to hear of the next; the message is that of the first."""
    request = replace(TURN, messages=[], sampling=Sampling(temperature=9.0, top_p=0.0), stop=[""], max_output_tokens=0)
    assert fields_of(request) == ["messages", "sampling.temperature", "sampling.top_p", "stop[0]", "max_output_tokens"]
    with pytest.raises(CallerError, match=r"^messages: must hold from 1 to 3 messages$") as refused:
        check_turn(request, LIMITS)
    assert (refused.value.code, refused.value.reason) == (Code.INVALID_ARGUMENT, "FIELD_INVALID")


def test_prompt_and_sampling_can_be_checked_alone() -> None:
    """For calls that count tokens, and for a stream's defaults."""
    check_prompt(TURN, LIMITS)
    check_sampling(Sampling(temperature=0.0))
    with pytest.raises(CallerError, match="messages") as refused:
        check_prompt(replace(TURN, messages=[], tools=[Tool("")]), LIMITS)
    assert [violation.field for violation in refused.value.violations] == ["messages", "tools[0].name"]
    with pytest.raises(CallerError, match=r"sampling\.top_k"):
        check_sampling(Sampling(top_k=2**31))


@pytest.mark.parametrize(
    ("asked", "prompt", "granted"),
    [(None, 10, 50), (20, 10, 20), (500, 10, 90), (None, 70, 30), (1, 99, 1)],
)
def test_an_answer_is_cut_to_the_room_that_is_left(asked: int | None, prompt: int, granted: int) -> None:
    """The default counts when nothing was asked, and neither exceeds what the prompt leaves of 100 tokens."""
    assert fit_output(asked, 50, prompt, 100) == granted


def test_a_prompt_that_leaves_no_room_is_refused_with_the_limit() -> None:
    """The message tells how long the prompt is and how long it may be."""
    words = r"^This model's maximum context length is 100 tokens. However, you requested 101 tokens \(100 in the prompt, at least 1 in"
    with pytest.raises(CallerError, match=words) as refused:
        fit_output(1, 50, 100, 100)
    assert refused.value.reason == "PROMPT_TOO_LONG"


@settings(deadline=None)
@given(
    st.builds(
        Sampling,
        temperature=st.none() | st.floats(0, 3, width=32),
        top_p=st.none() | st.floats(0, 2, width=32),
        top_k=st.none() | st.integers(0, 2**32 - 1),
        seed=st.none() | st.integers(0, 2**64 - 1),
        repetition_penalty=st.none() | st.floats(0, 20, width=32),
        presence_penalty=st.none() | st.floats(-3, 3, width=32),
        frequency_penalty=st.none() | st.floats(-3, 3, width=32),
    )
)
def test_what_passes_here_passes_at_the_engine(sampling: Sampling) -> None:
    """A caller hears of a wrong value as such, never as an engine that refused."""
    if not fields_of(replace(TURN, sampling=sampling)):
        fields = {name: getattr(sampling, name) for name in Sampling.__dataclass_fields__}
        check_engine_sampling(EngineSampling(**fields))


def sampling_of(name: str, value: Any) -> Sampling:
    return Sampling(**{name: value})

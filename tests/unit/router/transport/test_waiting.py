"""Turns that wait for tool results, and answers in one piece."""

from __future__ import annotations

import pytest

from router.errors import CallerError
from router.model import Finished, FinishReason, Message, Role, TextDelta, ToolCall, TurnEvent, TurnRequest, Usage
from router.tools import AUTO, Tool, ToolCallDelta, ToolChoice, ToolMode
from router.transport.gathering import Gathered
from router.transport.waiting import WaitingTurns

USER = Message(Role.USER, "hi")
ASK = TurnRequest("", (USER,), tools=(Tool("look"),), tool_choice=ToolChoice(ToolMode.REQUIRED))
LOOK: list[TurnEvent] = [ToolCallDelta(0, "id1", "look"), ToolCallDelta(0, arguments='{"a"'), ToolCallDelta(0, arguments=": 1}")]
GO: list[TurnEvent] = [ToolCallDelta(1, "id2", "go"), ToolCallDelta(1, arguments="{}")]
END: list[TurnEvent] = [Usage(1, 1), Finished(FinishReason.TOOL_CALLS)]


def result(call: str, content: str = "seen") -> Message:
    return Message(Role.TOOL, content, tool_call_id=call)


def waiting_turns(*turns: int, most_chars: int = 1000) -> tuple[WaitingTurns, list[int]]:
    """Turns that have called twice, and the list of those that were forgotten."""
    forgotten: list[int] = []
    waiting = WaitingTurns(most_chars, forgotten.append)
    for turn in turns:
        put = waiting.watch(turn, ASK, lambda events: None)
        for events in ([TextDelta("Wait.")], LOOK, GO, END):
            put(events)
    return waiting, forgotten


def test_what_a_turn_said_is_gathered() -> None:
    """Text and calls are joined from their pieces."""
    answer = Gathered()
    answer.put([TextDelta("a"), *LOOK, *GO, TextDelta("b"), *END])
    assert answer.text == "ab"
    assert answer.calls == (ToolCall("id1", "look", '{"a": 1}'), ToolCall("id2", "go", "{}"))


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.STOP, FinishReason.CANCELLED])
def test_calls_of_another_end_are_none(reason: FinishReason) -> None:
    """Nobody is to carry them out."""
    answer = Gathered()
    answer.put([*LOOK, Finished(reason)])
    assert answer.calls == ()


def test_a_turn_waits_from_its_finish_on() -> None:
    """The events are passed on when the results may come already."""
    waiting = WaitingTurns(1000, lambda turn: None)
    seen: list[bool] = []
    put = waiting.watch(1, ASK, lambda events: seen.append(1 in waiting))
    put(LOOK)
    put(END)
    assert seen == [False, True]


def test_a_turn_that_ends_otherwise_does_not_wait() -> None:
    """It needs no results."""
    waiting = WaitingTurns(1000, lambda turn: None)
    waiting.watch(1, ASK, lambda events: None)([*LOOK, Finished(FinishReason.LENGTH)])
    assert 1 not in waiting


def test_results_continue_the_conversation() -> None:
    """Behind the answer, in the order of the calls; what was forced is so no more."""
    waiting, _ = waiting_turns(1)
    request = waiting.go_on(1, [result("id2", "gone"), result("id1")])
    said = Message(Role.ASSISTANT, "Wait.", (ToolCall("id1", "look", '{"a": 1}'), ToolCall("id2", "go", "{}")))
    assert request.messages == (USER, said, result("id1"), result("id2", "gone"))
    assert (request.tools, request.tool_choice) == (ASK.tools, AUTO)
    assert 1 not in waiting


@pytest.mark.parametrize(
    ("calls", "fields"),
    [
        ([], ["tool_results.results"]),
        (["id1"], ["tool_results.results"]),
        (["id1", "id2", "id3"], ["tool_results.results[2].call_id"]),
        (["id1", "id1", "id2"], ["tool_results.results[1].call_id"]),
        (["id1", "other"], ["tool_results.results[1].call_id", "tool_results.results"]),
    ],
)
def test_wrong_results_are_told_and_the_turn_waits_on(calls: list[str], fields: list[str]) -> None:
    """Each call needs exactly one."""
    waiting, _ = waiting_turns(1)
    with pytest.raises(CallerError) as refused:
        waiting.go_on(1, [result(call) for call in calls])
    assert refused.value.reason == "FIELD_INVALID"
    assert [it.field for it in refused.value.violations] == fields
    assert 1 in waiting


def test_a_turn_that_does_not_wait_is_unknown() -> None:
    """Also when it has been answered."""
    waiting, _ = waiting_turns(1)
    waiting.go_on(1, [result("id1"), result("id2")])
    with pytest.raises(CallerError) as refused:
        waiting.go_on(1, [result("id1"), result("id2")])
    assert refused.value.reason == "TURN_UNKNOWN"


def test_the_oldest_turns_make_room() -> None:
    """What waits is bounded by its characters; the newest stays, however large."""
    waiting, forgotten = waiting_turns(1, 2, 3, most_chars=40)
    assert [turn in waiting for turn in (1, 2, 3)] == [False, True, True]
    assert forgotten == [1]
    large, forgotten = waiting_turns(1, 2, most_chars=1)
    assert (1 in large, 2 in large, forgotten) == (False, True, [1])


def test_a_turn_can_be_given_up() -> None:
    """Once."""
    waiting, forgotten = waiting_turns(1)
    waiting.drop(1)
    waiting.drop(1)
    assert (1 in waiting, forgotten) == (False, [1])

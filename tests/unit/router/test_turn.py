"""A turn without I/O: what the worker's tokens become, and how an answer ends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import worker_lost
from router.model import Failed, Finished, FinishReason, TextDelta, TurnEvent, Usage, WorkerDelta, WorkerFinish
from router.text.call_format import HERMES
from router.text.calls import CallParser
from router.text.decode import Decoder
from router.tools import ToolCallDelta
from router.turn import Turn

BYTES = [bytes((value,)) for value in range(256)]
PROMPT_TOKENS = 7


def new_turn(*stops: str) -> Turn:
    """A turn of a model that has one token for each byte."""
    return Turn(Decoder(BYTES), stops, PROMPT_TOKENS)


def text_of(events: list[TurnEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_tokens_become_text() -> None:
    """A running turn gives one delta a frame and nothing else."""
    assert new_turn().feed(WorkerDelta(b"hi", WorkerFinish.RUNNING)) == [TextDelta("hi")]


def test_half_a_character_waits_for_its_rest() -> None:
    """No event holds part of a character, and a frame that only brings a part gives no event."""
    turn, euro = new_turn(), "€".encode()
    assert turn.feed(WorkerDelta(euro[:2], WorkerFinish.RUNNING)) == []
    assert turn.feed(WorkerDelta(euro[2:], WorkerFinish.RUNNING)) == [TextDelta("€")]


def test_a_frame_may_bring_text_and_the_end() -> None:
    """The order is text, usage, terminal event."""
    events = new_turn().feed(WorkerDelta(b"hi", WorkerFinish.LENGTH))
    assert events == [TextDelta("hi"), Usage(PROMPT_TOKENS, 2), Finished(FinishReason.LENGTH)]


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        (WorkerFinish.END_ID, FinishReason.STOP),
        (WorkerFinish.STOP_WORDS, FinishReason.STOP),
        (WorkerFinish.LENGTH, FinishReason.LENGTH),
    ],
)
def test_a_worker_that_completes_finishes_the_turn(finish: WorkerFinish, reason: FinishReason) -> None:
    """The worker's codes for a complete answer become the caller's finish reasons."""
    assert new_turn().feed(WorkerDelta([], finish)) == [Usage(PROMPT_TOKENS, 0), Finished(reason)]


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        (WorkerFinish.CANCELLED, "WORKER_LOST"),
        (WorkerFinish.TIMED_OUT, "WORKER_STALLED"),
        (WorkerFinish.FAILED, "ENGINE_FAILED"),
        (WorkerFinish.REFUSED, "ENGINE_REFUSED"),
    ],
)
def test_a_worker_that_gives_up_fails_the_turn(finish: WorkerFinish, reason: str) -> None:
    """A turn that nobody cancelled and that did not complete is never a success."""
    usage, failed = new_turn().feed(WorkerDelta([], finish))
    assert usage == Usage(PROMPT_TOKENS, 0)
    assert isinstance(failed, Failed)
    assert failed.error.reason == reason


def test_every_end_of_a_worker_is_known() -> None:
    """No finish code leaves a turn without a terminal event."""
    for finish in set(WorkerFinish) - {WorkerFinish.RUNNING}:
        assert isinstance(new_turn().feed(WorkerDelta([], finish))[-1], Finished | Failed)


def test_a_stop_ends_the_turn_while_the_worker_runs() -> None:
    """The stop is named and not shown, nor is what follows it; its tokens count, since the engine made them."""
    turn = new_turn("END")
    events = turn.feed(WorkerDelta(b"one END two", WorkerFinish.RUNNING))
    assert events == [TextDelta("one "), Usage(PROMPT_TOKENS, 11), Finished(FinishReason.STOP, "END")]
    assert turn.ended


def test_a_stop_in_the_last_frame_wins_over_the_workers_reason() -> None:
    """The answer ended there, whatever the worker says of its own end."""
    assert new_turn("END").feed(WorkerDelta(b"oneEND", WorkerFinish.LENGTH))[-1] == Finished(FinishReason.STOP, "END")


def test_a_stop_that_only_the_flush_completes_counts() -> None:
    """A character that was cut off becomes U+FFFD, which may be the stop."""
    events = new_turn("\ufffd").feed(WorkerDelta(b"a" + "€".encode()[:1], WorkerFinish.LENGTH))
    assert (text_of(events), events[-1]) == ("a", Finished(FinishReason.STOP, "\ufffd"))


def test_what_a_stop_held_back_is_shown_at_the_end() -> None:
    """A beginning of a stop that did not go on was text."""
    turn = new_turn("END")
    assert text_of(turn.feed(WorkerDelta(b"the EN", WorkerFinish.RUNNING))) == "the "
    assert turn.feed(WorkerDelta([], WorkerFinish.END_ID))[0] == TextDelta("EN")


def test_a_cancelled_turn_shows_nothing_more() -> None:
    """What was held back stays back: it may be half of a stop."""
    turn = new_turn("END")
    turn.feed(WorkerDelta(b"EN", WorkerFinish.RUNNING))
    assert turn.cancel() == [Usage(PROMPT_TOKENS, 2), Finished(FinishReason.CANCELLED)]


def test_a_failed_turn_tells_its_usage() -> None:
    """The tokens made until then count."""
    turn, error = new_turn(), worker_lost()
    turn.feed(WorkerDelta(b"ab", WorkerFinish.RUNNING))
    assert turn.fail(error) == [Usage(PROMPT_TOKENS, 2), Failed(error)]


def test_cached_tokens_are_kept_from_the_frame_that_tells_them() -> None:
    """Later frames that do not tell leave the figure as it is."""
    turn = new_turn()
    turn.feed(WorkerDelta(b"a", cached_tokens=5))
    turn.feed(WorkerDelta(b"b", WorkerFinish.RUNNING))
    assert turn.usage == Usage(PROMPT_TOKENS, 2, 5)


def test_after_its_end_a_turn_ignores_everything() -> None:
    """Frames that were under way, a late cancel and a late failure add nothing, also not to the usage."""
    turn = new_turn()
    turn.feed(WorkerDelta(b"a", WorkerFinish.END_ID))
    assert turn.feed(WorkerDelta(b"b", WorkerFinish.LENGTH)) == turn.cancel() == turn.fail(worker_lost()) == []
    assert turn.usage.completion_tokens == 1


@settings(deadline=None)
@given(st.text(alphabet="ab€🔥", max_size=12), st.lists(st.text(alphabet="ab€", min_size=1, max_size=3), max_size=3), st.data())
def test_how_steps_cut_the_answer_does_not_matter(text: str, stops: list[str], data: st.DataObject) -> None:
    """Any cut of the tokens into frames gives the same text and the same end, and exactly one terminal event, which is last."""
    tokens = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(tokens)), max_size=5)))
    whole, turn = new_turn(*stops).feed(WorkerDelta(tokens, WorkerFinish.END_ID)), new_turn(*stops)
    events: list[TurnEvent] = []
    for start, end in zip([0, *cuts], [*cuts, len(tokens)], strict=True):
        events += turn.feed(WorkerDelta(tokens[start:end], WorkerFinish.RUNNING))
    events += turn.feed(WorkerDelta([], WorkerFinish.END_ID))
    assert (text_of(events), events[-1]) == (text_of(whole), whole[-1])
    assert [isinstance(event, Finished) for event in events].count(True) == 1


def calling_turn(*stops: str, parallel: bool = True, forced: bool = False) -> Turn:
    """A turn with a tool `look`, of a model that writes calls as Hermes does."""
    calls = CallParser(HERMES, ["look"], parallel=parallel, forced=forced, new_id=lambda: "id")
    return Turn(Decoder(BYTES), stops, PROMPT_TOKENS, calls=calls)


CALL = b'<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>'
CALL_EVENTS = [ToolCallDelta(0, "id", "look"), ToolCallDelta(0, arguments='{"a": 1}')]


def test_a_call_ends_the_turn_with_tool_calls() -> None:
    """Text, calls, usage and the end, in this order."""
    events = calling_turn().feed(WorkerDelta(b"Wait.\n" + CALL, WorkerFinish.END_ID))
    usage = Usage(PROMPT_TOKENS, len(b"Wait.\n" + CALL))
    assert events == [TextDelta("Wait."), *CALL_EVENTS, usage, Finished(FinishReason.TOOL_CALLS)]


def test_a_turn_that_offers_tools_may_answer_in_text() -> None:
    """It stops as any other, and what might have begun a call is shown."""
    events = calling_turn().feed(WorkerDelta(b"a < b <tool", WorkerFinish.END_ID))
    assert (text_of(events), events[-1]) == ("a < b <tool", Finished(FinishReason.STOP))


@pytest.mark.parametrize("cut", [CALL[:-15], CALL[:-1], CALL])
def test_a_length_in_or_behind_a_call_is_a_length(cut: bytes) -> None:
    """The answer is not complete, and its calls are not to be carried out."""
    assert calling_turn().feed(WorkerDelta(cut, WorkerFinish.LENGTH))[-1] == Finished(FinishReason.LENGTH)


def test_a_call_that_breaks_off_is_none() -> None:
    """The model ended its answer in the middle of the arguments."""
    events = calling_turn().feed(WorkerDelta(CALL[:45], WorkerFinish.END_ID))
    assert isinstance(events[-3], ToolCallDelta)
    assert events[-1] == Finished(FinishReason.STOP)


def test_what_a_stop_held_back_comes_before_a_call() -> None:
    """The beginning of a stop that a call cuts off was text."""
    events = calling_turn("DEF").feed(WorkerDelta(b"AB D" + CALL))
    assert events[:2] == [TextDelta("AB "), TextDelta("D")]
    assert events[2:] == CALL_EVENTS


def test_a_stop_is_not_looked_for_in_a_call() -> None:
    """Neither in its arguments nor in what stands around them."""
    events = calling_turn("arguments", "1", "tool").feed(WorkerDelta(CALL, WorkerFinish.END_ID))
    assert events[:-2] == CALL_EVENTS
    assert events[-1] == Finished(FinishReason.TOOL_CALLS)


def test_a_stop_before_a_call_ends_the_turn() -> None:
    """The call is not part of the answer."""
    events = calling_turn("END").feed(WorkerDelta(b"a END" + CALL))
    assert (events[0], events[-1], len(events)) == (TextDelta("a "), Finished(FinishReason.STOP, "END"), 3)


def test_a_broken_call_behind_a_stop_does_not_count() -> None:
    """It is not part of the answer; the whole one before is."""
    broken = CALL.replace(b"1", b"one")
    assert calling_turn("END").feed(WorkerDelta(CALL + b"END" + broken))[-1] == Finished(FinishReason.TOOL_CALLS, "END")


def test_a_stop_behind_a_call_is_named() -> None:
    """The call counts: it was whole before."""
    events = calling_turn("END").feed(WorkerDelta(CALL + b" END"))
    assert events[-1] == Finished(FinishReason.TOOL_CALLS, "END")


def test_one_call_ends_the_turn_where_calls_are_not_parallel() -> None:
    """While the worker runs."""
    turn = calling_turn(parallel=False)
    assert turn.feed(WorkerDelta(CALL + CALL))[-1] == Finished(FinishReason.TOOL_CALLS)
    assert turn.ended


def test_a_turn_cancelled_in_a_call_is_cancelled() -> None:
    """What was given out of the call stays out."""
    turn = calling_turn()
    turn.feed(WorkerDelta(CALL[:45]))
    assert turn.cancel()[-1] == Finished(FinishReason.CANCELLED)


def test_a_budget_that_ends_in_a_call_is_no_call() -> None:
    """As a length."""
    turn = calling_turn()
    turn.feed(WorkerDelta(CALL))
    assert turn.stop(FinishReason.BUDGET)[-1] == Finished(FinishReason.BUDGET)


@pytest.mark.parametrize(("forced", "field"), [(True, "tools"), (False, "response_format")])
def test_a_refused_guide_names_who_asked_for_it(forced: bool, field: str) -> None:
    """The guide of a forced call comes from the tools."""
    refusal = "guided_decoding_guide: #/$defs/look: not supported"
    *_, failed = calling_turn(forced=forced).feed(WorkerDelta([], WorkerFinish.REFUSED, refusal=refusal))
    assert isinstance(failed, Failed)
    assert [it.field for it in failed.error.violations] == [field]


@given(st.data())
def test_how_steps_cut_a_call_does_not_matter(data: st.DataObject) -> None:
    """Within characters, too: text and arguments are whole ones."""
    answer = 'Schön.\n<tool_call>{"name": "look", "arguments": {"a": "€🔥"}}</tool_call>'.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=8)))
    turn = calling_turn()
    events = [
        event for start, end in zip([0, *cuts], [*cuts, len(answer)], strict=True) for event in turn.feed(WorkerDelta(answer[start:end]))
    ]
    assert text_of(events) == "Schön."
    assert "".join(it.arguments for it in events if isinstance(it, ToolCallDelta)) == '{"a": "€🔥"}'
    assert turn.feed(WorkerDelta([], WorkerFinish.END_ID))[-1] == Finished(FinishReason.TOOL_CALLS)

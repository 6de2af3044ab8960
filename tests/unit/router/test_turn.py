"""A turn without I/O: what the worker's tokens become, and how an answer ends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import worker_lost
from router.model import Failed, Finished, FinishReason, TextDelta, TurnEvent, Usage, WorkerDelta, WorkerFinish
from router.text.decode import Decoder
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

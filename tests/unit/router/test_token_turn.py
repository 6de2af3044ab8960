"""An answer that is told as token ids, fed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import worker_lost
from router.model import Failed, Finished, FinishReason, TurnEvent, Usage, WorkerDelta, WorkerFinish
from router.token_turn import TokenTurn
from router.tokens import TokenDelta


def ids_of(events: list[TurnEvent]) -> list[int]:
    return [token for event in events if isinstance(event, TokenDelta) for token in event.tokens]


def test_ids_go_out_as_they_came() -> None:
    """A delta for each frame, then the counts and the end; a frame without tokens brings nothing."""
    turn = TokenTurn([], 3)
    assert turn.feed(WorkerDelta([5, 6])) == [TokenDelta([5, 6])]
    assert turn.feed(WorkerDelta([])) == []
    ending = turn.feed(WorkerDelta([7], WorkerFinish.LENGTH, cached_tokens=2))
    assert ending == [TokenDelta([7]), Usage(3, 3, 2), Finished(FinishReason.LENGTH)]


@pytest.mark.parametrize(("wanted", "told"), [(True, [-1.0, -2.0]), (False, None)])
def test_log_probs_are_for_who_asked(wanted: bool, told: list[float] | None) -> None:
    """A frame may hold them because another turn wants them."""
    turn = TokenTurn([], 1, logprobs=wanted)
    assert turn.feed(WorkerDelta([5, 6], log_probs=[-1.0, -2.0])) == [TokenDelta([5, 6], told)]


def test_a_stop_is_part_of_the_answer() -> None:
    """It ends there, though the worker goes on; what came behind it is counted and not shown."""
    turn = TokenTurn([[6, 7]], 1, logprobs=True)
    events = turn.feed(WorkerDelta([5, 6])) + turn.feed(WorkerDelta([7, 8], log_probs=[-1.0, -2.0]))
    assert events == [TokenDelta([5, 6]), TokenDelta([7], [-1.0]), Usage(1, 4), Finished(FinishReason.STOP)]
    assert turn.ended


def test_a_failed_turn_tells_its_usage() -> None:
    """What came before the failure was used."""
    turn = TokenTurn([], 1)
    turn.feed(WorkerDelta([5]))
    error = worker_lost()
    assert turn.fail(error) == [Usage(1, 1), Failed(error)]


@given(
    ids=st.lists(st.integers(0, 3), max_size=20),
    stops=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), max_size=3),
    data=st.data(),
)
def test_how_steps_cut_the_answer_does_not_matter(ids: list[int], stops: list[list[int]], data: st.DataObject) -> None:
    """It ends behind the first place where a stop is complete."""
    turn, events = TokenTurn(stops, 1), list[TurnEvent]()
    at = 0
    while at < len(ids):
        size = data.draw(st.integers(1, 4))
        events += turn.feed(WorkerDelta(ids[at : at + size]))
        at += size
    ends = [end for end in range(1, len(ids) + 1) if any(ids[max(0, end - len(stop)) : end] == stop for stop in stops)]
    assert ids_of(events) == ids[: ends[0] if ends else len(ids)]
    assert turn.ended == bool(ends)

"""What a new home must know of a stream, out of its frames."""

from __future__ import annotations

from tidegate.v1.chat_service_pb2 import ConverseResponse
from tidegate.v1.event_pb2 import FINISH_REASON_STOP, FINISH_REASON_TOOL_CALLS, Event, Failed, Finished, Heartbeat, TextDelta

from router.transport.exchange.progress import Progress, load_progress


def frame(*events: Event) -> ConverseResponse:
    return ConverseResponse(events=events)


def text(turn: int, sequence: int) -> Event:
    return Event(turn=turn, sequence=sequence, text_delta=TextDelta(text="a"))


def test_events_are_counted_by_turn_until_its_end() -> None:
    """The numbers of those that go on; the stream's own too."""
    progress = Progress()
    for turn in (1, 2, 3):
        progress.start(turn)
    progress.note(frame(Event(sequence=1, heartbeat=Heartbeat()), text(1, 1), text(2, 1)))
    progress.note(frame(text(1, 2), Event(turn=2, sequence=2, finished=Finished(finish_reason=FINISH_REASON_STOP))))
    progress.note(frame(Event(turn=3, sequence=1, failed=Failed())))
    assert progress.events == {0: 1, 1: 2}
    assert (progress.running, progress.last_turn) == ([1], 3)


def test_a_turn_that_has_called_tools_goes_on_counting() -> None:
    """It does not run until its results come, and may be given up."""
    called = Event(turn=1, sequence=5, finished=Finished(finish_reason=FINISH_REASON_TOOL_CALLS))
    progress = Progress()
    progress.start(1)
    progress.note(frame(called))
    assert (progress.running, progress.waiting, progress.events) == ([], {1}, {0: 0, 1: 5})
    progress.start(1)
    assert (progress.running, progress.waiting, progress.events) == ([1], set(), {0: 0, 1: 5})
    progress.note(frame(called))
    progress.forget(1)
    assert (progress.running, progress.waiting, progress.events) == ([], set(), {0: 0})


def test_it_travels_as_text() -> None:
    """And its version rises with each change, on both sides."""
    progress = Progress()
    progress.start(1)
    progress.start(2)
    progress.note(frame(text(1, 1), Event(turn=2, sequence=4, finished=Finished(finish_reason=FINISH_REASON_TOOL_CALLS))))
    arrived = load_progress(progress.dump())
    assert vars(arrived) == vars(progress)
    arrived.start(3)
    assert (arrived.version, arrived.last_turn) == (progress.version + 1, 3)

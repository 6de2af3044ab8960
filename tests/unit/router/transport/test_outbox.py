"""A stream's outbox: events become frames, and a slow reader gets fewer and larger ones."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tidegate.v1 import event_pb2 as pb
from tidegate.v1.chat_service_pb2 import ConverseResponse, StreamResponse

from router.errors import worker_lost
from router.model import Failed, Finished, FinishReason, Logprobs, Started, TextDelta, TokenLogprob, Usage
from router.tools import ToolCallDelta
from router.transport.outbox import FINISH_REASONS, STREAM, Outbox, seconds
from router.transport.status import to_status


def new_outbox() -> Outbox[ConverseResponse]:
    return Outbox(ConverseResponse, "request-1")


async def take(outbox: Outbox[ConverseResponse]) -> list[pb.Event]:
    """The events of the next frame; none when the outbox is closed and empty."""
    frame = await outbox.take()
    return [] if frame is None else list(frame.events)


async def test_each_event_has_its_message() -> None:
    """What happens in a turn arrives with all its fields."""
    outbox = new_outbox()
    outbox.put(1, [Started("small", "w:1", 7, 9), TextDelta("hi"), Usage(7, 2, 3), Finished(FinishReason.STOP, "END")])
    events = await take(outbox)
    assert [event.WhichOneof("event") for event in events] == ["started", "text_delta", "usage", "finished"]
    assert events[0].started == pb.Started(model="small", worker="w:1", prompt_tokens=7, max_output_tokens=9)
    assert events[1].text_delta.text == "hi"
    assert events[2].usage == pb.Usage(prompt_tokens=7, completion_tokens=2, cached_tokens=3)
    assert events[3].finished == pb.Finished(finish_reason=pb.FINISH_REASON_STOP, stop="END")


async def test_a_failure_carries_a_rich_status() -> None:
    """Reason and request id are in it, as in the status of a failed call."""
    outbox = new_outbox()
    outbox.put(1, [Failed(worker_lost())])
    status = (await take(outbox))[0].failed.status
    assert status == to_status(worker_lost(), "request-1")


def test_every_finish_reason_has_its_number() -> None:
    """None would reach the caller as unspecified."""
    assert set(FINISH_REASONS) == set(FinishReason)


async def test_all_that_came_leaves_at_once() -> None:
    """One frame holds the events of all turns, each numbered by its turn from 1."""
    outbox = new_outbox()
    outbox.put(1, [TextDelta("a")])
    outbox.put(2, [TextDelta("b"), Usage(1, 1)])
    outbox.put_stream_event(heartbeat=pb.Heartbeat())
    assert [(event.turn, event.sequence) for event in await take(outbox)] == [(1, 1), (2, 1), (2, 2), (STREAM, 1)]


async def test_text_that_waits_is_joined() -> None:
    """A turn's consecutive text is one event, however other turns come in between."""
    outbox = new_outbox()
    for turn, text in [(1, "a"), (2, "x"), (1, "b"), (2, "y"), (1, "c")]:
        outbox.put(turn, [TextDelta(text)])
    assert [(event.turn, event.text_delta.text) for event in await take(outbox)] == [(1, "abc"), (2, "xy")]


async def test_a_tool_call_that_waits_is_one_event() -> None:
    """Its id and name come with its first piece, and neither text nor another call is joined to it."""
    outbox = new_outbox()
    first, second = ToolCallDelta(0, "id1", "look"), ToolCallDelta(1, "id2", "go")
    outbox.put(1, [TextDelta("a"), first, ToolCallDelta(0, arguments='{"n"'), ToolCallDelta(0, arguments=": 1}"), second])
    outbox.put(1, [ToolCallDelta(1, arguments="{}"), TextDelta("b")])
    text, look, go, rest = await take(outbox)
    assert (text.text_delta.text, rest.text_delta.text) == ("a", "b")
    assert look.tool_call_delta == pb.ToolCallDelta(index=0, call_id="id1", name="look", arguments_json='{"n": 1}')
    assert go.tool_call_delta == pb.ToolCallDelta(index=1, call_id="id2", name="go", arguments_json="{}")


async def test_a_tool_call_goes_on_in_the_next_frame() -> None:
    """What was taken does not change any more; the later piece tells its index only."""
    outbox = new_outbox()
    outbox.put(1, [ToolCallDelta(0, "id1", "look"), ToolCallDelta(0, arguments="{")])
    await take(outbox)
    outbox.put(1, [ToolCallDelta(0, arguments="}")])
    assert [event.tool_call_delta for event in await take(outbox)] == [pb.ToolCallDelta(index=0, arguments_json="}")]


async def test_text_is_not_joined_across_another_event_or_a_frame() -> None:
    """The order of a turn's events stays, and what was taken does not change any more."""
    outbox = new_outbox()
    outbox.put(1, [TextDelta("a"), Usage(1, 1), TextDelta("b")])
    events = await take(outbox)
    outbox.put(1, [TextDelta("c")])
    assert [event.text_delta.text for event in events] == ["a", "", "b"]
    assert [(event.sequence, event.text_delta.text) for event in await take(outbox)] == [(4, "c")]


async def test_take_waits_for_news() -> None:
    """An empty outbox gives no empty frames, and no events are no news."""
    outbox = new_outbox()
    taking = asyncio.create_task(take(outbox))
    outbox.put(1, [])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not taking.done()
    outbox.put(1, [TextDelta("a")])
    assert len(await taking) == 1


async def test_a_closed_outbox_gives_what_it_has_and_then_none() -> None:
    """What came before the end is still sent, what comes later is not."""
    outbox = new_outbox()
    outbox.put(1, [TextDelta("a")])
    outbox.close()
    outbox.put(1, [TextDelta("b")])
    outbox.put_stream_event(heartbeat=pb.Heartbeat())
    assert [event.text_delta.text for event in await take(outbox)] == ["a"]
    assert await outbox.take() is None


async def test_closing_wakes_who_waits() -> None:
    """The writer of a quiet stream learns of its end."""
    outbox = new_outbox()
    taking = asyncio.create_task(outbox.take())
    await asyncio.sleep(0)
    outbox.close()
    assert await taking is None


async def test_a_forgotten_turn_leaves_its_waiting_events() -> None:
    """Only what is kept about it goes."""
    outbox = new_outbox()
    outbox.put(1, [Usage(1, 1), Finished(FinishReason.STOP)])
    outbox.forget(1)
    assert [event.sequence for event in await take(outbox)] == [1, 2]


async def test_frames_are_of_the_type_asked_for() -> None:
    """The simple calls have a response message of their own."""
    outbox = Outbox(StreamResponse, "request-1")
    outbox.put(1, [TextDelta("a")])
    assert isinstance(await outbox.take(), StreamResponse)


@pytest.mark.parametrize(("value", "nanos"), [(0.5, 500_000_000), (0.0004, 0), (1.0009, 1_000_000)])
def test_durations_are_rounded_to_milliseconds(value: float, nanos: int) -> None:
    """Enough for a grace period."""
    assert seconds(value).ToNanoseconds() % 1_000_000_000 == nanos


TAKE = None
STEPS = st.lists(st.just(TAKE) | st.tuples(st.integers(1, 3), st.text("ab", min_size=1, max_size=3) | st.just("|")), max_size=20)


@settings(deadline=None)
@given(STEPS)
async def test_nothing_is_lost_or_reordered_however_slow_the_reader(steps: list[tuple[int, str] | None]) -> None:
    """A turn's frames joined are what was put in, here texts with `|` for another event, and its numbers rise by one from 1."""
    outbox, put, taken = new_outbox(), defaultdict[int, str](str), list[pb.Event]()
    for step in steps:
        if step is not TAKE:
            turn, text = step
            put[turn] += text
            outbox.put(turn, [Usage(1, 1) if text == "|" else TextDelta(text)])
        else:
            outbox.put_stream_event(heartbeat=pb.Heartbeat())  # so that there is something to take
            taken += await take(outbox)
    outbox.close()
    taken += await take(outbox)
    for turn in put:
        mine = [event for event in taken if event.turn == turn]
        assert "".join("|" if event.HasField("usage") else event.text_delta.text for event in mine) == put[turn]
        assert [event.sequence for event in mine] == list(range(1, len(mine) + 1))


async def test_frames_stay_below_the_default_limit_of_clients() -> None:
    """What piles up for a slow caller leaves in several frames, each well under gRPC's 4 MiB, with nothing lost or moved."""
    outbox = Outbox(ConverseResponse, "id")
    for piece in range(2000):
        for turn in (1, 2):
            outbox.put(turn, [TextDelta(f"{piece:04}" + "€" * 300)])
    outbox.close()
    frames = []
    while (frame := await outbox.take()) is not None:
        frames.append(frame)
    assert max(frame.ByteSize() for frame in frames) < 2 * 1024 * 1024
    events = [event for frame in frames for event in frame.events if event.turn == 1]
    assert "".join(event.text_delta.text for event in events) == "".join(f"{piece:04}" + "€" * 300 for piece in range(2000))
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))


async def test_frames_of_log_probabilities_stay_below_the_default_limit_of_websockets() -> None:
    """However many tokens an event tells of, the frame is under 1 MiB in JSON."""
    outbox = Outbox(ConverseResponse, "id")
    for _ in range(400):
        outbox.put(1, [Logprobs([TokenLogprob(100_000, b"token", -12.345678)] * 50)])
    outbox.close()
    sizes = []
    while (frame := await outbox.take()) is not None:
        sizes.append(len(json_format.MessageToJson(frame, indent=None)))
    assert len(sizes) > 1
    assert max(sizes) < 1024 * 1024

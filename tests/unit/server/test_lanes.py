"""Lanes: one frame a step, merged while the router is behind, and no token lost, doubled or moved."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.engine.base import Description, Finish, Load, Output, Timing
from server.lanes import WINDOW, Frame, Lane, describe_end

DESCRIPTION = Description("small", "scripted", "fast", 2048, 266, (2, 0), 8, 100, 32)
LOAD = Load(0, 0, 99, 100, 32, 500)


def open_lane(*requests: int) -> Lane:
    """A lane that has sent its greeting, with these requests running."""
    lane = Lane(DESCRIPTION)
    lane.take_frame(LOAD)
    lane.acknowledge(1, 0.0)
    for request in requests:
        lane.open_request(request, 100 + request)
    return lane


def take(lane: Lane) -> Frame:
    """The next frame, which must be there."""
    frame = lane.take_frame(LOAD)
    assert frame is not None
    return frame


def fill_window(lane: Lane) -> None:
    """Sends frames until the router is too far behind for another."""
    while lane.take_frame(LOAD, even_if_empty=True):
        pass


def test_the_first_frame_introduces_the_engine() -> None:
    """Once, and before any token."""
    lane = Lane(DESCRIPTION)
    lane.add(1, Output(101, [8]))
    first = take(lane)
    assert json.loads(first.detail[0])["description"]["total_blocks"] == 100
    assert (first.sequence, first.request, first.output_ids) == (1, [1], [8])
    lane.add(1, Output(101, [9]))
    assert take(lane).detail == []


def test_a_step_is_one_frame() -> None:
    """All requests of the step are in it, each with its number of tokens."""
    lane = open_lane(1, 2, 3)
    for request, tokens in [(1, [7]), (2, []), (3, [8, 9])]:
        lane.add(request, Output(100 + request, tokens))
    frame = take(lane)
    assert (frame.request, frame.counts, frame.output_ids, frame.finish) == ([1, 2, 3], [1, 0, 2], [7, 8, 9], [0, 0, 0])
    assert frame.load is LOAD
    assert frame.detail == []
    assert lane.take_frame(LOAD) is None


def test_without_news_a_frame_is_sent_only_as_a_heartbeat() -> None:
    """It has the load and no entries, and is numbered like any other."""
    lane = open_lane(1)
    assert lane.take_frame(LOAD) is None
    beat = lane.take_frame(LOAD, even_if_empty=True)
    assert beat is not None
    assert (beat.sequence, beat.request) == (2, [])


def test_what_others_have_is_news() -> None:
    """A router hears of it when that changes, though it has nothing there itself; its own requests are told apart."""
    lane = open_lane(1)
    alone, joined = replace(LOAD, active=1), replace(LOAD, active=2, queued=3)
    assert lane.take_frame(alone) is None
    told = lane.take_frame(joined)
    assert told is not None
    assert (told.load, told.own) == (joined, 1)
    assert lane.take_frame(joined) is None
    lane.add(1, Output(101, [], Finish.LENGTH))
    ended = lane.take_frame(replace(LOAD, active=4))
    assert ended is not None
    assert ended.own == 0
    assert lane.take_frame(LOAD) is not None


def test_an_end_carries_its_detail() -> None:
    """Times and error go with the last entry of a request, named by the router's number."""
    lane = open_lane(1)
    lane.add(1, Output(101, [8], Finish.LENGTH, timing=Timing(5, 1, 2, 3, 4)))
    frame = take(lane)
    assert frame.finish == [Finish.LENGTH]
    assert [json.loads(text) for text in frame.detail] == [
        {"request": 1, "arrived_ns": 5, "queue_ns": 1, "prefill_ns": 2, "decode_ns": 3, "cached_tokens": 4}
    ]


@pytest.mark.parametrize(
    ("timing", "error", "detail"),
    [
        (None, None, {}),
        (None, "no room", {"error": "no room"}),
        (Timing(1, 2, 3, 4), None, {"arrived_ns": 1, "queue_ns": 2, "prefill_ns": 3, "decode_ns": 4, "cached_tokens": None}),
    ],
)
def test_what_is_unknown_is_left_out(timing: Timing | None, error: str | None, detail: dict[str, object]) -> None:
    """A request that never ran has no times."""
    assert describe_end(timing, error) == detail


def test_an_ended_request_runs_no_more() -> None:
    """Its number is free of the engine's, so that closing it later cancels nothing."""
    lane = open_lane(1, 2)
    lane.add(1, Output(101, [], Finish.END_ID))
    assert dict(lane.numbers) == {2: 102}
    assert lane.close_request(1) is None
    assert lane.close_request(2) == 102


def test_a_closed_request_leaves_nothing_behind() -> None:
    """The router gave it up: what it produced and was not sent is dropped, and others stay."""
    lane = open_lane(1, 2)
    lane.add(1, Output(101, [7]))
    lane.add(2, Output(102, [8]))
    lane.close_request(1)
    assert (frame := take(lane)).request == [2]
    assert frame.output_ids == [8]


def test_a_cancel_that_comes_first_is_remembered() -> None:
    """The request it was for must not start; others may."""
    lane = open_lane()
    assert lane.close_request(4) is None
    assert lane.was_cancelled(4)
    assert not lane.was_cancelled(5)


def test_a_router_that_is_behind_gets_no_frame() -> None:
    """At most WINDOW frames are on their way; each acknowledged one makes room for another."""
    lane = open_lane(1)
    fill_window(lane)
    lane.add(1, Output(101, [7]))
    assert lane.take_frame(LOAD) is None
    lane.acknowledge(2, 0.0)
    assert take(lane).sequence == 1 + WINDOW + 1
    lane.add(1, Output(101, [8]))
    assert lane.take_frame(LOAD) is None


def test_what_waits_is_merged_by_request() -> None:
    """The router that catches up gets one entry for each request, with the newest finish and its detail."""
    lane = open_lane(1, 2)
    fill_window(lane)
    lane.add(1, Output(101, [1]))
    lane.add(2, Output(102, [5]))
    lane.add(1, Output(101, [2, 3]))
    lane.add(1, Output(101, [4], Finish.FAILED, error="broken"))
    lane.acknowledge(1 + WINDOW, 0.0)
    frame = take(lane)
    assert (frame.request, frame.counts, frame.output_ids) == ([1, 2], [4, 1], [1, 2, 3, 4, 5])
    assert frame.finish == [Finish.FAILED, Finish.RUNNING]
    assert [json.loads(text) for text in frame.detail] == [{"request": 1, "error": "broken"}]


def test_an_old_acknowledgement_changes_nothing() -> None:
    """They may overtake each other."""
    lane = open_lane()
    fill_window(lane)
    lane.acknowledge(1 + WINDOW, 0.0)
    lane.acknowledge(1, 0.0)
    assert lane.take_frame(LOAD, even_if_empty=True) is not None


def test_log_probs_align_with_tokens_when_only_some_ask() -> None:
    """A request that asked for none has zeros; where nobody asked there is no tensor at all."""
    lane = open_lane(1, 2, 3)
    lane.add(1, Output(101, [7, 8]))
    lane.add(2, Output(102, [9], log_probs=[-0.5]))
    lane.add(3, Output(103, [4]))
    assert take(lane).log_probs == [0.0, 0.0, -0.5, 0.0]
    lane.add(1, Output(101, [7]))
    assert take(lane).log_probs is None


@pytest.mark.parametrize(("first", "second"), [(None, [-2.0]), ([-1.0], None), ([-1.0], [-2.0])])
def test_merged_log_probs_stay_with_their_tokens(first: list[float] | None, second: list[float] | None) -> None:
    """Also when one of the steps brought none."""
    lane = open_lane(1)
    lane.add(1, Output(101, [7], log_probs=first))
    lane.add(1, Output(101, [8], log_probs=second))
    assert take(lane).log_probs == [(first or [0.0])[0], (second or [0.0])[0]]


REQUESTS = (1, 2, 3)
ACTIONS = st.lists(st.integers(1, 3) | st.dictionaries(st.sampled_from(REQUESTS), st.integers(0, 3)), max_size=40)


@settings(deadline=None)
@given(ACTIONS, st.sets(st.sampled_from(REQUESTS)))
def test_every_token_arrives_once_and_in_order_whatever_is_acknowledged(actions: list[int | dict[int, int]], logged: set[int]) -> None:
    """The router starts far behind; an action is a step that brings so many tokens to requests, or the router reads so many more frames.

    Tokens count up, and the log probability of one is the token negated, so that one that moved would show.
    """
    lane, frames, read = open_lane(*REQUESTS), list[Frame](), 1
    fill_window(lane)
    made = dict.fromkeys(REQUESTS, 0)
    for action in actions:
        if isinstance(action, int):
            read = min(read + action, 1 + WINDOW + len(frames))
            lane.acknowledge(read, 0.0)
        else:
            for request, count in action.items():
                lane.add(request, count_on(request, made[request], count, logged))
                made[request] += count
        frames += filter(None, [lane.take_frame(LOAD)])
    lane.acknowledge(1 + WINDOW + len(frames), 0.0)
    for request in REQUESTS:
        lane.add(request, Output(request, [], Finish.LENGTH))
    frames.append(take(lane))
    assert [frame.sequence for frame in frames] == [2 + WINDOW + at for at in range(len(frames))]
    assert join(frames) == {request: list(range(1, count + 1)) for request, count in made.items()}
    for frame in frames:
        assert_log_probs_align(frame, logged)


def count_on(request: int, made: int, count: int, logged: set[int]) -> Output:
    """The next `count` tokens of a request that has made so many."""
    tokens = list(range(made + 1, made + 1 + count))
    return Output(request, tokens, log_probs=[-float(token) for token in tokens] if request in logged else None)


def join(frames: list[Frame]) -> dict[int, list[int]]:
    """Each request's tokens, as a router joins them."""
    joined: defaultdict[int, list[int]] = defaultdict(list)
    for frame in frames:
        tokens = iter(frame.output_ids)
        for request, count in zip(frame.request, frame.counts, strict=True):
            joined[request] += islice(tokens, count)
        assert list(tokens) == []
    return joined


def assert_log_probs_align(frame: Frame, logged: set[int]) -> None:
    owners = [request for request, count in zip(frame.request, frame.counts, strict=True) for _ in range(count)]
    expected = [-float(token) if owner in logged else 0.0 for token, owner in zip(frame.output_ids, owners, strict=True)]
    assert frame.log_probs == expected or (frame.log_probs is None and not any(expected))


def test_kv_events_travel_with_the_next_frame_once() -> None:
    """A lane's frame carries the engine's KV cache events as they came."""
    lane = Lane(DESCRIPTION)
    lane.take_frame(LOAD)
    lane.add_kv_events([{"event_id": 1}, {"event_id": 2}])
    frame = lane.take_frame(LOAD)
    assert frame is not None
    assert json.loads(frame.detail[0]) == {"kv_events": [{"event_id": 1}, {"event_id": 2}]}
    assert lane.take_frame(LOAD) is None


def test_a_router_far_behind_misses_the_oldest_kv_events_only() -> None:
    """What is kept for a router that does not read is bounded; the gap shows in the events' ids."""
    lane = Lane(DESCRIPTION)
    lane.take_frame(LOAD)
    lane.add_kv_events([{"event_id": number} for number in range(5000)])
    frame = lane.take_frame(LOAD)
    assert frame is not None
    ids = [event["event_id"] for event in json.loads(frame.detail[0])["kv_events"]]
    assert ids == list(range(5000 - len(ids), 5000))
    assert len(ids) < 5000

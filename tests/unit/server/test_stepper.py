"""The engine's loop: what reaches lanes and callers, and what becomes of them when one side goes."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

from server.engine.base import EngineBroken, Finish, Load, Output, Request
from server.engine.scripted import Break, Emit, Script
from server.lanes import WINDOW, Frame
from server.stepper import Address, Stepper
from tests.unit.server.stepping import ENDLESS, PATIENCE_S, Answer, FakeLane, FakeReply, Held, StrictEngine, make_stepper, spell, stepping


def ask(*prompt: int, most: int = 1000) -> Request:
    """A request that the default script answers with its own prompt."""
    return Request(0, prompt, most)


def generate(stepper: Stepper, request: Request, lane: str, number: int) -> FakeReply:
    stepper.generate(request, reply := FakeReply(), Address(lane, number))
    return reply


def attach(stepper: Stepper, name: str = "a") -> FakeLane:
    stepper.attach(name, lane := FakeLane())
    return lane


def test_tokens_travel_in_the_lanes_frames() -> None:
    """The request's own response stream only hears of the end, with its times."""
    with stepping(make_stepper()) as stepper:
        lane = attach(stepper)
        reply = generate(stepper, ask(7, 8, 9), "a", 5)
        assert lane.answer(5) == Answer([7, 8, 9], Finish.END_ID, None)
        assert reply.ended().timing is not None
        assert reply.outputs.empty()


def test_without_a_lane_tokens_come_back_to_the_caller() -> None:
    """As from the stock model: an output a step, the last with the finish."""
    with stepping(make_stepper()) as stepper:
        stepper.generate(ask(7, 8, most=2), reply := FakeReply(), None)
        assert reply.ended().finish is Finish.LENGTH
    assert [(it.tokens, it.finish) for it in (reply.outputs.get(), reply.outputs.get())] == [([7], 0), ([8], Finish.LENGTH)]


def test_a_step_is_one_frame_for_all_requests_of_a_lane() -> None:
    """Requests that run together share their frames."""
    stepper = make_stepper()
    lane = attach(stepper)
    for number in (1, 2, 3):
        generate(stepper, ask(10 + number, 20 + number), "a", number)
    with stepping(stepper):
        first, second = lane.next_frame(), lane.next_frame()
    assert (first.request, first.output_ids) == ([1, 2, 3], [11, 12, 13])
    assert (second.request, second.output_ids) == ([1, 2, 3], [21, 22, 23])


def test_lanes_do_not_mix() -> None:
    """Two routers may use the same numbers: each gets its own tokens."""
    with stepping(make_stepper()) as stepper:
        lanes = [attach(stepper, name) for name in ("a", "b")]
        for name, token in (("a", 7), ("b", 8)):
            generate(stepper, ask(token), name, 1)
        assert [lane.answer(1).tokens for lane in lanes] == [[7], [8]]


def test_numbers_are_unique_for_the_engine() -> None:
    """Whatever the callers', a number is never given twice."""
    engine = StrictEngine()
    with stepping(make_stepper(engine)) as stepper:
        lane = attach(stepper)
        for number in (1, 2):
            generate(stepper, ask(7), "a", number)
            lane.answer(number)
    assert [request.number for request in engine.requests] == [1, 2]


def test_a_cancelled_request_leaves_at_the_next_step() -> None:
    """The step that runs completes; what it brought is not sent any more, and there is no other."""
    engine = StrictEngine(held := Held([Emit((2,)), Emit((3,)), Emit((4,))]))
    with stepping(make_stepper(engine)) as stepper:
        lane = attach(stepper)
        reply = generate(stepper, ask(0), "a", 1)
        held.wait()
        stepper.cancel("a", [1])
        held.release()
        assert reply.ended() == Output(1, [], Finish.CANCELLED)
    assert (engine.made, engine.cancelled) == (2, 1)
    assert lane.ended() == "the worker is stopping"
    while not lane.frames.empty():
        lane.next_frame()
    assert lane.tokens(1) in ([1], [1, 2])


def test_what_does_not_run_cannot_be_cancelled() -> None:
    """Unknown lanes and numbers, and requests that ended just before, are ignored."""
    engine = StrictEngine()
    with stepping(make_stepper(engine)) as stepper:
        lane = attach(stepper)
        generate(stepper, ask(7), "a", 1)
        lane.answer(1)
        stepper.cancel("a", [1, 99])
        stepper.cancel("none", [1])
        stepper.acknowledge("none", 1)
        generate(stepper, ask(8), "a", 2)
        assert lane.answer(2).tokens == [8]
    assert engine.cancelled == 0


def test_a_cancel_may_come_before_its_request() -> None:
    """Traced requests come on streams of their own: one that was given up already does not start."""
    engine = StrictEngine()
    with stepping(make_stepper(engine)) as stepper:
        attach(stepper)
        stepper.cancel("a", [1])
        assert generate(stepper, ask(7), "a", 1).ended().finish is Finish.CANCELLED
    assert engine.calls == 0


def test_a_lane_that_goes_takes_its_requests_along() -> None:
    """They leave the engine; those of another lane go on."""
    scripts: dict[int, Script] = {0: (held := Held(ENDLESS)), 1: lambda request: ENDLESS, 2: spell}
    engine = StrictEngine(lambda request: scripts[request.prompt[0]](request))
    with stepping(make_stepper(engine)) as stepper:
        leaving, staying = attach(stepper, "a"), attach(stepper, "b")
        replies = [generate(stepper, ask(0), "a", 1), generate(stepper, ask(1), "a", 2)]
        generate(stepper, ask(2, 5, 5), "b", 1)
        held.wait()
        leaving.gone = True
        held.release()
        assert [reply.ended().finish for reply in replies] == [Finish.CANCELLED] * 2
        assert leaving.ended() is None
        assert staying.answer(1).tokens == [2, 5, 5]
    assert engine.cancelled == 2


def test_a_caller_that_goes_takes_its_request_along() -> None:
    """Without a lane it is the request's own stream that tells."""
    engine = StrictEngine(held := Held(ENDLESS))
    with stepping(make_stepper(engine)) as stepper:
        stepper.generate(ask(0), reply := FakeReply(), None)
        held.wait()
        reply.gone = True
        held.release()
        assert reply.ended().finish is Finish.CANCELLED
    assert engine.cancelled == 1


def test_a_number_that_runs_is_refused_and_the_first_goes_on() -> None:
    """The refusal comes on the second's own stream: on the lane it would end the first, which could not be cancelled any more."""
    engine = StrictEngine(held := Held(ENDLESS))
    with stepping(make_stepper(engine)) as stepper:
        lane = attach(stepper)
        first = generate(stepper, ask(0), "a", 1)
        held.wait()
        second = generate(stepper, ask(0), "a", 1)
        held.release()
        assert "this number runs on the lane already" in second.refused()
        stepper.cancel("a", [1])
        assert first.ended().finish is Finish.CANCELLED
    assert lane.tokens(1) == []
    assert (engine.calls, engine.cancelled) == (1, 1)


def test_a_lane_that_nobody_attached_is_refused() -> None:
    """On the request's own stream, since there is no other."""
    with stepping(make_stepper()) as stepper:
        assert generate(stepper, ask(7), "none", 1).refused() == "lane: not attached"


def test_a_lane_is_attached_once() -> None:
    """A second stream of the same name is told so, and the first stays."""
    with stepping(make_stepper()) as stepper:
        first, second = attach(stepper), attach(stepper)
        assert second.ended() == "this lane is attached already"
        generate(stepper, ask(7), "a", 1)
        assert first.answer(1).tokens == [7]


def test_a_refused_request_is_told_where_its_caller_listens() -> None:
    """On the lane with the reason, and its own stream ends; without a lane, on its own stream."""
    with stepping(make_stepper()) as stepper:
        lane = attach(stepper)
        reply = generate(stepper, ask(), "a", 1)
        answer = lane.answer(1)
        assert (answer.finish, answer.error) == (Finish.REFUSED, "input_ids: must hold at least one token id")
        assert reply.ended().finish is Finish.REFUSED
        stepper.generate(ask(), alone := FakeReply(), None)
        assert alone.refused() == answer.error


def test_a_broken_engine_fails_its_requests_and_is_built_anew() -> None:
    """The lane lives: it hears of the failure, and the next request is served by the new engine."""
    broken, sound = StrictEngine(lambda request: [Emit((1,)), Break()]), StrictEngine()
    with stepping(make_stepper(broken, sound)) as stepper:
        lane = attach(stepper)
        reply = generate(stepper, ask(0), "a", 1)
        assert lane.answer(1) == Answer([1], Finish.FAILED, "the engine failed and was built anew")
        assert reply.ended().finish is Finish.FAILED
        generate(stepper, ask(7), "a", 2)
        assert lane.answer(2) == Answer([7], Finish.END_ID, None)
    assert (broken.closed, sound.closed) == (True, True)


class Refractory(StrictEngine):
    """Raises instead of taking a request with an answer of one token."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def submit(self, request: Request) -> None:
        if request.max_new_tokens == 1:
            raise self._error
        super().submit(request)


@pytest.mark.parametrize("error", [EngineBroken("dead"), RuntimeError("a bug")])
def test_an_engine_that_breaks_as_it_takes_a_request_fails_it_and_is_built_anew(error: Exception) -> None:
    """The request is not refused, which would blame it: its router may take it to another worker. Those that run fail too."""
    broken, sound = Refractory(error), StrictEngine()
    with stepping(make_stepper(broken, sound)) as stepper:
        lane = attach(stepper)
        generate(stepper, ask(*[5] * 1000), "a", 1)
        reply = generate(stepper, ask(7, most=1), "a", 2)
        assert lane.answer(2) == Answer([], Finish.FAILED, "the engine failed as it took the request")
        assert reply.ended().finish is Finish.FAILED
        assert lane.answer(1).finish is Finish.FAILED
        generate(stepper, ask(7, most=1), "a", 3)
        assert lane.answer(3).tokens == [7]
    assert (broken.closed, sound.closed) == (True, True)


def test_an_engine_that_cannot_be_built_anew_is_down() -> None:
    """Lanes and callers get an error, those who come later too, and the worker can still be stopped."""
    with stepping(make_stepper(StrictEngine(lambda request: [Break()]))) as stepper:
        lane, alone = attach(stepper), FakeReply()
        reply = generate(stepper, ask(0), "a", 1)
        stepper.generate(ask(0), alone, None)
        assert lane.ended() == "the engine is down"
        assert (reply.ended().finish, alone.ended().finish) == (Finish.FAILED, Finish.FAILED)
        assert attach(stepper, "b").ended() == "the engine is down"
        assert generate(stepper, ask(0), "a", 2).refused() == "the engine is down"


def test_an_idle_lane_gets_heartbeats() -> None:
    """Frames without entries, numbered on: a router tells a live worker from a hung one by them."""
    with stepping(make_stepper()) as stepper:
        lane = attach(stepper)
        frames = [lane.next_frame() for _ in range(2)]
    assert [(frame.sequence, frame.request) for frame in frames] == [(1, []), (2, [])]
    assert (len(frames[0].detail), frames[1].detail) == (1, [])


def test_the_load_is_observed_with_every_heartbeat() -> None:
    """Whether anybody is attached or not: metrics show an idle engine too."""
    loads: SimpleQueue[Load] = SimpleQueue()
    with stepping(make_stepper(observe=loads.put)) as stepper:
        stepper.acknowledge("none", 1)  # wakes the loop, which would look at the clock in a second
        assert loads.get(timeout=PATIENCE_S).total_blocks == 100


def test_a_router_that_does_not_acknowledge_gets_the_rest_when_it_does() -> None:
    """The engine goes on meanwhile; no frame beyond the window is sent, and then one holds all that was made."""
    with stepping(make_stepper()) as stepper:
        lane = attach(stepper)
        lane.next_frame()
        reply = generate(stepper, ask(*[5] * 3 * WINDOW), "a", 1)
        reply.ended()
        sent = [lane.next_frame().sequence for _ in range(WINDOW - 1)]
        assert lane.frames.empty()
        stepper.acknowledge("a", sent[-1])
        assert lane.answer(1).tokens == [5] * 3 * WINDOW
    assert lane.frames.empty()


def test_stopping_ends_everything() -> None:
    """Lanes end with an error, so that routers fail what ran there, callers too, and the engine is closed."""
    engine = StrictEngine(held := Held(ENDLESS))
    stepper = make_stepper(engine)
    lane, alone = attach(stepper), FakeReply()
    reply = generate(stepper, ask(0), "a", 1)
    stepper.generate(ask(0), alone, None)
    with stepping(stepper):
        held.wait()
        stepper.stop()
        held.release()
        assert lane.ended() == "the worker is stopping"
        assert [it.ended().error for it in (reply, alone)] == ["the worker is stopping"] * 2
    assert engine.closed


def test_a_command_that_fails_hurts_no_other() -> None:
    """Whatever is in it: the loop goes on, and who waits is told."""
    with stepping(make_stepper()) as stepper:
        lane = attach(stepper)
        stepper.cancel("a", [[]])  # type: ignore[list-item]  # no number
        stepper.acknowledge("a", "x")  # type: ignore[arg-type]  # no number either
        stepper.attach([], wrong := FakeLane())  # type: ignore[arg-type]  # no name
        stepper.generate(ask(7), reply := FakeReply(), Address([], 1))  # type: ignore[arg-type]  # no name
        generate(stepper, ask(7, 8), "a", 5)
        assert lane.answer(5).tokens == [7, 8]
        assert "the worker failed" in str(wrong.ends.get(timeout=PATIENCE_S))
        assert "the worker failed" in reply.refused()


class Deaf(FakeLane):
    """Its stream cannot be written to."""

    def send_frame(self, frame: Frame) -> None:
        raise RuntimeError("no")


def test_a_lane_that_takes_no_frame_ends_and_others_go_on() -> None:
    """Triton may fail to send."""
    with stepping(make_stepper()) as stepper:
        stepper.attach("deaf", deaf := Deaf())
        lane = attach(stepper)
        generate(stepper, ask(7, 8), "a", 5)
        assert lane.answer(5).tokens == [7, 8]
        assert deaf.ends.get(timeout=PATIENCE_S) is None

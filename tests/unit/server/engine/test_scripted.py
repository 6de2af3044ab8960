"""The scripted engine: the contract of the engine port, played step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from server.engine.base import Description, EngineBroken, Finish, Output, Request, RequestRefused
from server.engine.scripted import Action, Break, Emit, End, ScriptedEngine, Stall, Wait, count_up

DESCRIPTION = Description("small", "scripted", "fast", 2048, 266, (2,), 2, 100, 32)


def make_engine(*actions: Action) -> ScriptedEngine:
    """An engine that plays the same for every request, two at a time."""
    return engine_of(lambda request: actions)


def engine_of(script: Callable[[Request], Iterable[Action]]) -> ScriptedEngine:
    return ScriptedEngine(DESCRIPTION, script, 0.0)


def run(engine: ScriptedEngine) -> list[Output]:
    """All outputs until nothing is left to do."""
    outputs = []
    while engine.has_work():
        outputs += engine.step()
    return outputs


def told(outputs: list[Output]) -> list[tuple[int, list[int], Finish]]:
    return [(output.number, output.tokens, output.finish) for output in outputs]


def test_each_step_plays_one_action_of_every_request() -> None:
    """Tokens come in bursts, as from in-flight batching; a script that runs out ends by itself."""
    engine = make_engine(Emit((7,)), Emit((8, 9)))
    engine.submit(Request(1, [5], 10))
    engine.submit(Request(2, [5], 10))
    assert told(engine.step()) == [(1, [7], Finish.RUNNING), (2, [7], Finish.RUNNING)]
    assert told(engine.step()) == [(1, [8, 9], Finish.RUNNING), (2, [8, 9], Finish.RUNNING)]
    assert told(engine.step()) == [(1, [], Finish.END_ID), (2, [], Finish.END_ID)]
    assert not engine.has_work()


def test_an_answer_ends_at_its_length() -> None:
    """What the script would go on with is cut, and the last token comes with the end."""
    engine = make_engine(Emit((7,)), Emit((8, 9)), Emit((10,)))
    engine.submit(Request(1, [5], 2))
    assert told(run(engine)) == [(1, [7], Finish.RUNNING), (1, [8], Finish.LENGTH)]
    assert engine.made == 2


def test_a_script_may_see_the_request() -> None:
    """And answer each differently."""
    engine = engine_of(lambda request: [Emit((request.prompt[0],))])
    for number in (1, 2):
        engine.submit(Request(number, [number * 10], 1))
    assert told(run(engine)) == [(1, [10], Finish.LENGTH), (2, [20], Finish.LENGTH)]
    assert [request.number for request in engine.requests] == [1, 2]


def test_a_script_may_end_early_and_say_why() -> None:
    """Any finish code, with an error if it likes."""
    engine = make_engine(End(Finish.FAILED, "no room"))
    engine.submit(Request(1, [5], 2))
    (output,) = run(engine)
    assert (output.finish, output.error) == (Finish.FAILED, "no room")


def test_no_more_run_than_have_a_place() -> None:
    """The others wait, which the load tells, and come when one has ended."""
    engine = make_engine(Emit((7,)))
    for number in (1, 2, 3):
        engine.submit(Request(number, [5], 1))
    assert [output.number for output in engine.step()] == [1, 2]
    assert (engine.load().active, engine.load().queued) == (0, 1)
    assert [output.number for output in engine.step()] == [3]


def test_waiting_holds_up_nobody_else() -> None:
    """One request brings nothing for a while; a stall holds up the step, and all go on after it."""
    scripts: dict[int, list[Action]] = {1: [Wait(0.002), Emit((7,))], 2: [Stall(0.001), Emit((8,))]}
    engine = engine_of(lambda request: scripts[request.number])
    for number in (1, 2):
        engine.submit(Request(number, [5], 1))
    assert sorted(told(run(engine))) == [(1, [7], Finish.LENGTH), (2, [8], Finish.LENGTH)]


def test_a_broken_engine_says_so() -> None:
    """In the step, for all requests at once."""
    engine = make_engine(Break())
    engine.submit(Request(1, [5], 1))
    with pytest.raises(EngineBroken):
        engine.step()


@pytest.mark.parametrize("steps", [0, 1], ids=["waiting", "running"])
def test_a_cancelled_request_gives_nothing_more(steps: int) -> None:
    """Whether it has begun or not; unknown numbers are ignored."""
    engine = make_engine(*[Emit((7,))] * 5)
    engine.submit(Request(1, [5], 5))
    for _ in range(steps):
        engine.step()
    engine.cancel(1)
    engine.cancel(99)
    assert not engine.has_work()
    assert (engine.made, engine.cancelled) == (steps, 1)


def test_a_request_that_would_do_harm_is_refused() -> None:
    """As by every engine, and nothing is left behind."""
    engine = make_engine()
    with pytest.raises(RequestRefused):
        engine.submit(Request(1, [], 1))
    assert (engine.has_work(), engine.calls) == (False, 0)


def test_the_load_counts_blocks() -> None:
    """Prompt and answer of what runs, in whole blocks."""
    engine = make_engine(Emit((7,)), Emit((8,)))
    engine.submit(Request(1, [5] * 32, 5))
    assert engine.load().free_blocks == 100
    engine.step()
    assert engine.load().free_blocks == 98


def test_an_end_has_its_times() -> None:
    """They add up to the time since the request came."""
    engine = make_engine(Emit((7,)), Wait(0.001), Emit((8,)))
    engine.submit(Request(1, [5], 2))
    timing = run(engine)[-1].timing
    assert timing is not None
    assert timing.prefill_ns >= 0
    assert timing.decode_ns >= 1_000_000


def test_a_closed_engine_has_nothing_to_do() -> None:
    """Whatever ran."""
    engine = make_engine(Emit((7,)))
    engine.submit(Request(1, [5], 5))
    engine.close()
    assert not engine.has_work()


def test_the_load_generators_script_fills_the_answer() -> None:
    """One token a step until the length asked for, all of them in any vocabulary."""
    engine = engine_of(count_up)
    engine.submit(Request(1, [5], 70))
    outputs = run(engine)
    tokens = [token for output in outputs for token in output.tokens]
    assert (len(outputs), len(tokens), outputs[-1].finish) == (70, 70, Finish.LENGTH)
    assert 0 <= min(tokens) <= max(tokens) < DESCRIPTION.vocabulary

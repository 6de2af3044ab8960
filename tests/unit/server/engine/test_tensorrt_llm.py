"""The GPU engine over a fake library: what an answer holds and how it ends, in all the ways the library has."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tests.fakes
from server.engine.base import EngineBroken, Finish, Output, Request, RequestRefused
from server.engine.tensorrt_llm import TensorRtLlmEngine
from server.engine.trtllm_loop import ResponseLoop
from server.engine.trtllm_options import RequestWriter
from server.engine.trtllm_results import Answer
from server.options import EngineOptions, build_engine
from server.stepper import Address
from tests.fakes.tensorrt_llm.library import build_library
from tests.fakes.tensorrt_llm.results import CppExecutorError
from tests.fakes.tensorrt_llm.script import Die, Fail, Make
from tests.fakes.tensorrt_llm.script import Finish as End
from tests.unit.server.engine.trtllm import (
    END_ID,
    SECOND_END_ID,
    answering,
    ask,
    build_engine_folder,
    build_folder,
    collect,
    running,
)
from tests.unit.server.stepping import DESCRIPTION, FakeLane, FakeReply, make_stepper, stepping

PROMPT = (5, 6, 7)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_folder(tmp_path)


def test_an_answer_ends_at_its_length(folder: Path) -> None:
    """Tokens come as the library's cumulative list grows, each once, until max_new_tokens."""
    with running(folder) as (engine, _):
        answer = ask(engine, Request(1, PROMPT, 4))
    assert (answer.tokens, answer.finish, answer.error) == ([100, 101, 102, 103], Finish.LENGTH, None)


@pytest.mark.parametrize("end_id", [END_ID, SECOND_END_ID])
def test_the_end_token_is_not_in_the_answer(folder: Path, end_id: int) -> None:
    """The PyTorch runtime leaves it in the output; to the library a further end id is a stop word."""
    with running(folder, Make((8,)), Make((9, end_id, 10))) as (engine, _):
        answer = ask(engine, Request(1, PROMPT, 10))
    assert (answer.tokens, answer.finish) == ([8, 9], Finish.END_ID)


def test_an_engine_folder_trims_the_end_token_itself(tmp_path: Path) -> None:
    """The last response of a TensorRT engine then holds no token at all."""
    with running(build_engine_folder(tmp_path), Make((8,)), Make((END_ID,)), release="1.2") as (engine, _):
        answer = ask(engine, Request(1, PROMPT, 10))
    assert (answer.tokens, answer.finish) == ([8], Finish.END_ID)


def test_an_end_token_at_the_limit_is_an_end(folder: Path) -> None:
    """The library looks at the length first and says `length`; the answer ended by itself."""
    with running(folder, Make((8, SECOND_END_ID))) as (engine, _):
        answer = ask(engine, Request(1, PROMPT, 2))
    assert (answer.tokens, answer.finish) == ([8], Finish.END_ID)


def test_a_requests_own_end_ids_replace_the_models(folder: Path) -> None:
    """The model's end token is then a token like any other."""
    with running(folder, Make((8, END_ID, 9, 77))) as (engine, _):
        answer = ask(engine, Request(1, PROMPT, 10, end_ids=(77,)))
    assert (answer.tokens, answer.finish) == ([8, END_ID, 9], Finish.END_ID)


def test_a_stop_id_is_in_the_answer(folder: Path) -> None:
    """The library would take it off the list again, which shrinks what has been sent."""
    with running(folder, Make((8,)), Make((50,)), Make((9,))) as (engine, _):
        answer = ask(engine, Request(1, PROMPT, 10, stop_ids=(50,)))
    assert (answer.tokens, answer.finish) == ([8, 50], Finish.STOP_WORDS)


def test_log_probs_align_with_the_tokens(folder: Path) -> None:
    """One for each token of the answer, and none for the end token."""
    with running(folder, Make((8, 9)), Make((10, END_ID))) as (engine, _):
        answer = ask(engine, Request(1, PROMPT, 10, log_probs=True))
    assert (answer.tokens, answer.log_probs) == ([8, 9, 10], [-0.008, -0.009, -0.01])


@pytest.mark.parametrize(
    ("reason", "finish"), [("timeout", Finish.TIMED_OUT), ("cancelled", Finish.CANCELLED), (None, Finish.FAILED), ("new", Finish.FAILED)]
)
def test_the_executors_own_endings(folder: Path, reason: str | None, finish: Finish) -> None:
    """A reason that is not known is a failure, not silence."""
    with running(folder, Make((8,)), End(reason)) as (engine, _):
        answer = ask(engine, Request(1, PROMPT, 10))
    assert (answer.tokens, answer.finish, bool(answer.error)) == ([8], finish, finish is Finish.FAILED)


def test_one_iteration_is_one_step(folder: Path) -> None:
    """What an iteration brought for all requests comes in one step."""
    with running(folder) as (engine, llm):
        llm.executor.hold()
        for number in (1, 2, 3):
            engine.submit(Request(number, PROMPT, 10))
        assert engine.step() == []
        llm.executor.iterate()
        assert [(output.number, output.tokens) for output in engine.step()] == [(1, [100]), (2, [100]), (3, [100])]


class SlowAnswer(Answer):
    """Takes its time to read a response, in which another thread can run."""

    def read(self, response: Any) -> Output:
        time.sleep(0.02)
        return super().read(response)


def test_an_iteration_is_handed_over_whole() -> None:
    """Also to a step that waits for it while the responses are read one after another."""
    library = build_library()
    llm = library.LLM(model="small", max_seq_len=512)
    responses = ResponseLoop(llm, library.llmapi.RequestError, 0)
    llm.executor.hold()
    for number in (1, 2, 3):
        request = Request(number, PROMPT, 10)
        arguments = RequestWriter(library, EngineOptions(Path(), "small"), (END_ID,)).write(request)
        responses.start(SlowAnswer(request, DESCRIPTION), arguments)
    llm.executor.iterate()
    assert [output.number for output in responses.take(5.0)] == [1, 2, 3]
    llm.shutdown()
    responses.close()


def test_a_late_step_takes_all_that_waits(folder: Path) -> None:
    """A step that comes late catches up instead of staying behind."""
    with running(folder) as (engine, llm):
        llm.executor.hold()
        engine.submit(Request(1, PROMPT, 3))
        for _ in range(3):
            llm.executor.iterate()
        assert collect(engine, 1)[1].tokens == [100, 101, 102]
        assert not engine.has_work()


def test_a_cancelled_request_says_nothing_more(folder: Path) -> None:
    """It is aborted in the library, what it still brings is dropped, and the others go on."""
    with running(folder) as (engine, llm):
        llm.executor.hold()
        engine.submit(Request(1, PROMPT, 400))
        engine.submit(Request(2, PROMPT, 5))
        llm.executor.iterate()
        engine.cancel(1)
        engine.cancel(99)
        llm.executor.resume()
        outputs = [output for _ in range(20) for output in engine.step()]
        assert {output.number for output in outputs} == {2}
        assert len(llm.executor.aborted) == 1
        assert not engine.has_work()


def test_a_request_that_fails_fails_alone(folder: Path) -> None:
    """Its error is one short line; the library's may carry a stack trace."""
    with running(folder, Make((8,)), Fail("Unsupported grammar\n1 0x7f libtensorrt_llm.so")) as (engine, _):
        answer = ask(engine, Request(1, PROMPT, 10))
        assert (answer.tokens, answer.finish, answer.error) == ([8], Finish.FAILED, "tensorrt_llm: Unsupported grammar")
        assert ask(engine, Request(2, PROMPT, 10)).tokens == [8]


def test_what_the_library_will_not_take_is_refused(folder: Path) -> None:
    """Nothing of it is left behind."""
    with running(folder, enable_chunked_context=False, max_num_batched_tokens=64) as (engine, _):
        with pytest.raises(RequestRefused, match="tensorrt_llm: The sum of prompt length"):
            engine.submit(Request(1, [5] * 65, 10))
        assert not engine.has_work()


@pytest.mark.parametrize(("prompt", "most"), [(512, 1), (500, 13), (0, 1)])
def test_what_exceeds_the_context_does_not_reach_the_library(folder: Path, prompt: int, most: int) -> None:
    """A prompt that is too long may end the executor, and too much output is cut silently."""
    with running(folder) as (engine, llm):
        with pytest.raises(RequestRefused):
            engine.submit(Request(1, [5] * prompt, most))
        assert len(llm.asked) == 1  # the engine's own first request


def test_a_request_may_fill_the_context(folder: Path) -> None:
    """The library's own limits, some far smaller by default, are raised to the model's."""
    with running(folder) as (engine, _):
        assert len(ask(engine, Request(1, [5] * 500, 12)).tokens) == 12


def test_a_dead_executor_breaks_the_engine(folder: Path) -> None:
    """What it brought before is handed on; then the engine is broken, for submits as well."""
    with running(folder, Make((8,)), Die(CppExecutorError("CUDA error"))) as (engine, llm):
        llm.executor.hold()
        engine.submit(Request(1, PROMPT, 10))
        llm.executor.iterate()
        llm.executor.iterate()
        assert [output.tokens for output in engine.step()] == [[8]]
        with pytest.raises(EngineBroken, match="tensorrt_llm failed: CppExecutorError"):
            collect(engine, 1)
        with pytest.raises(EngineBroken, match="tensorrt_llm took no request: RuntimeError"):
            engine.submit(Request(2, PROMPT, 10))


def test_an_executor_that_takes_no_request_is_broken(folder: Path) -> None:
    """That it died while nothing ran shows with the next request; the engine then asks for a step, which says so."""
    with running(folder) as (engine, llm):
        llm.executor.shutdown()
        with pytest.raises(EngineBroken):
            engine.submit(Request(1, PROMPT, 10))
        assert engine.has_work()
        with pytest.raises(EngineBroken):
            engine.step()


def test_an_executor_that_falls_silent_is_broken(folder: Path) -> None:
    """Nothing tells of a worker process that was killed: its requests would wait for ever."""
    with running(folder, Make((8,)), Die(None), silence_s=0.3) as (engine, _):
        engine.submit(Request(1, PROMPT, 10))
        with pytest.raises(EngineBroken, match="neither answers nor counts iterations"):
            collect(engine, 1)


def test_an_idle_executor_may_be_silent(folder: Path) -> None:
    """Silence counts only while something runs, and from then on."""
    with running(folder, silence_s=0.3) as (engine, llm):
        llm.executor.hold()
        assert [output for _ in range(35) for output in engine.step()] == []
        engine.submit(Request(1, PROMPT, 2))
        assert engine.step() == []
        llm.executor.resume()
        assert collect(engine, 1)[1].finish is Finish.LENGTH


def test_close_ends_the_executor(folder: Path) -> None:
    """Requests that still run go with it."""
    library = build_library()
    engine = TensorRtLlmEngine(EngineOptions(folder, "small", "tensorrt_llm"), library)
    engine.submit(Request(1, PROMPT, 400))
    engine.close()
    assert library.made[0].executor.is_shutdown
    assert not engine.has_work()


def test_an_engine_whose_first_request_fails_is_not_built(folder: Path) -> None:
    """The library is shut down again."""
    library = build_library(lambda prompt: [Fail("no kernel for this GPU")])
    with pytest.raises(EngineBroken, match="no kernel for this GPU"):
        TensorRtLlmEngine(EngineOptions(folder, "small", "tensorrt_llm"), library)
    assert library.made[0].executor.is_shutdown


def test_from_the_library_to_a_lane(folder: Path) -> None:
    """Driven by the stepper: answers reach their lane, and an executor that dies is built anew."""
    options = EngineOptions(folder, "small", "tensorrt_llm")
    dying = TensorRtLlmEngine(options, build_library(answering(Make((8,)), Die(CppExecutorError("CUDA error")))))
    stepper = make_stepper(dying, TensorRtLlmEngine(options, build_library(answering(Make((8, 9)), Make((END_ID,))))))
    with stepping(stepper):
        stepper.attach("a", lane := FakeLane())
        for number in (1, 2):
            stepper.generate(Request(0, PROMPT, 10), reply := FakeReply(), Address("a", number))
            reply.ended()
        assert (lane.answer(1).finish, lane.answer(1).error) == (Finish.FAILED, "the engine failed and was built anew")
        assert (lane.answer(2).tokens, lane.answer(2).finish) == ([8, 9], Finish.END_ID)


@pytest.fixture
def installed() -> Iterator[None]:
    """The fake as the package tensorrt_llm."""
    sys.path.insert(0, str(Path(tests.fakes.__file__).parent))
    importlib.invalidate_caches()
    yield
    sys.path.pop(0)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorrt_llm"]:
        del sys.modules[name]


@pytest.mark.usefixtures("installed")
def test_the_option_engine_names_it(folder: Path) -> None:
    """The package is imported only when it is asked for."""
    engine = build_engine(EngineOptions(folder, "small", "tensorrt_llm"))
    assert engine.description.engine == "tensorrt_llm"
    engine.close()

"""The Triton model: tensors and parameters in, answers, frames and errors out."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils

from server.engine.base import Finish, Load, Output, Sampling
from server.engine.scripted import Emit, End, Script
from server.triton_model import DEFAULT_OUTPUT_TOKENS, TidegateModel, read_request
from tests.unit.server.stepping import PATIENCE_S, StrictEngine


class Call:
    """A request to the model, and what came back on it."""

    def __init__(self, parameters: dict[str, Any] | None = None, trace_context: str | None = None, **tensors: Any) -> None:
        self._responses: SimpleQueue[tuple[pb_utils.InferenceResponse | None, bool]] = SimpleQueue()
        sender = pb_utils.ResponseSender(lambda response, final: self._responses.put((response, final)), lambda: False)
        inputs = [pb_utils.Tensor(name, np.asarray(values)) for name, values in tensors.items()]
        self.request = pb_utils.InferenceRequest(inputs, parameters or {}, sender, trace_context)

    def next(self) -> tuple[dict[str, list[Any]], bool]:
        """The next response's tensors, and whether it is the last."""
        response, final = self._responses.get(timeout=PATIENCE_S)
        assert response is None or response.error is None
        return {it.name(): it.as_numpy().tolist() for it in response.output_tensors} if response else {}, final

    def error(self) -> str:
        """The text of the error that ends the request at once."""
        response, final = self._responses.get(timeout=PATIENCE_S)
        assert response is not None
        assert response.error is not None
        assert final
        return str(response.error.message)


class Model:
    """The model over a scripted engine."""

    def __init__(self, engine: StrictEngine) -> None:
        self.engine = engine
        self._model = TidegateModel(lambda options: engine)
        config = {"parameters": {"model_dir": {"string_value": "/models/small"}}}
        self._model.initialize({"model_name": "tensorrt_llm", "model_version": "1", "model_config": json.dumps(config)})

    def call(self, parameters: dict[str, Any] | None = None, **tensors: Any) -> Call:
        self._model.execute([(call := Call(parameters, **tensors)).request])
        return call

    def execute(self, *calls: Call) -> None:
        self._model.execute([call.request for call in calls])

    def close(self) -> None:
        self._model.finalize()


@contextmanager
def running(script: Script | None = None, engine: StrictEngine | None = None) -> Iterator[Model]:
    model = Model(engine or StrictEngine(script))
    try:
        yield model
    finally:
        model.close()


def test_an_answer_without_a_lane_comes_on_its_own_request() -> None:
    """A response a step with the stock model's tensors; the last has the finish reason, and then comes the final flag."""
    with running() as model:
        call = model.call(input_ids=[7, 8], request_output_len=[2])
        assert call.next() == ({"output_ids": [7], "sequence_length": [1]}, False)
        assert call.next() == ({"output_ids": [8], "sequence_length": [1], "finish_reason": [b"length"]}, False)
        assert call.next() == ({}, True)


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        (Finish.END_ID, b"stop"),
        (Finish.STOP_WORDS, b"stop"),
        (Finish.LENGTH, b"length"),
        (Finish.TIMED_OUT, b"timeout"),
        (Finish.CANCELLED, b"cancelled"),
    ],
)
def test_finish_reasons(finish: Finish, reason: bytes) -> None:
    """In words that callers of the stock model know."""
    with running(lambda request: [End(finish)]) as model:
        assert model.call(input_ids=[7]).next() == ({"output_ids": [], "sequence_length": [0], "finish_reason": [reason]}, False)


def test_log_probabilities_come_with_their_tokens() -> None:
    """When they were asked for."""

    class LoggingEngine(StrictEngine):
        def step(self) -> list[Output]:
            outputs = super().step()
            for output in outputs:
                output.log_probs = [-0.5] * len(output.tokens)
            return outputs

    with running(engine=LoggingEngine()) as model:
        tensors, _ = model.call(input_ids=[7], request_output_len=[1], return_log_probs=[True]).next()
        assert tensors["output_log_probs"] == [-0.5]
        assert model.engine.requests[0].log_probs


def test_a_failure_is_an_error_and_no_answer() -> None:
    """The tokens until then came, and the reason comes as Triton's error."""
    with running(lambda request: [Emit((7,)), End(Finish.FAILED, "no room")]) as model:
        call = model.call(input_ids=[5])
        assert call.next() == ({"output_ids": [7], "sequence_length": [1]}, False)
        assert "finish_reason" not in call.next()[0]
        assert call.error() == "no room"


def test_a_request_the_engine_refuses_is_an_error() -> None:
    """With the engine's own sentence, which names the tensor."""
    with running() as model:
        assert model.call(input_ids=[7], request_output_len=[0]).error() == "request_output_len: must be at least 1"


def test_a_lane_gets_frames_and_its_requests_only_their_end() -> None:
    """The first frame introduces the engine, the next hold the tokens under the router's number; the stream stays open."""
    with running() as model:
        lane = model.call({"op": "attach", "lane": "a"})
        greeting, final = lane.next()
        assert not final
        assert "description" in json.loads(greeting["detail"][0])
        call = model.call({"op": "generate", "lane": "a", "request": 5}, input_ids=[7], request_output_len=[1])
        assert call.next() == ({}, True)
        frame, final = lane.next()
        assert (frame["sequence"], frame["request"], frame["counts"], frame["output_ids"]) == ([2], [5], [1], [7])
        assert (frame["finish"], len(frame["load"]), final) == ([Finish.LENGTH], 7, False)
    assert lane.error() == "the worker is stopping"


def test_a_request_on_a_lane_that_is_not_there_is_an_error() -> None:
    """Nobody would hear of it otherwise."""
    with running() as model:
        assert model.call({"lane": "none", "request": 1}, input_ids=[7]).error() == "lane: not attached"


def test_cancel_and_acknowledge_only_end() -> None:
    """What they do shows in the lane."""
    with running(lambda request: [Emit((7,))] * 1000) as model:
        model.call({"op": "attach", "lane": "a"})
        call = model.call({"lane": "a", "request": 5}, input_ids=[7], request_output_len=[1000])
        assert model.call({"op": "ack", "lane": "a", "sequence": 1}).next() == ({}, True)
        assert model.call({"op": "cancel", "lane": "a"}, request_ids=[5]).next() == ({}, True)
        assert call.next() == ({}, True)


@pytest.mark.parametrize(
    ("parameters", "tensors", "message"),
    [
        ({"op": "dance"}, {}, "op: must be generate, attach, cancel or ack"),
        ({}, {}, "input_ids: not present in the request"),
        ({"lane": "a"}, {"input_ids": [7]}, "request: not present in the request"),
        ({"op": "attach"}, {}, "lane: not present in the request"),
        ({"op": "cancel"}, {"request_ids": [1]}, "lane: not present in the request"),
        ({"op": "cancel", "lane": "a"}, {}, "request_ids: not present in the request"),
        ({"op": "ack", "lane": "a"}, {}, "sequence: not present in the request"),
    ],
)
def test_a_request_that_lacks_something_is_an_error(parameters: dict[str, Any], tensors: dict[str, Any], message: str) -> None:
    """It is named, and no request is left without an answer."""
    with running() as model:
        assert model.call(parameters, **tensors).error() == message


def test_a_salt_reaches_the_engine() -> None:
    """On a lane or not; no salt is none."""
    with running() as model:
        for salt in ({"cache_salt": "9f2c"}, {}):
            assert model.call(salt, input_ids=[7], request_output_len=[1]).next()[0]["output_ids"] == [7]
        assert [request.cache_salt for request in model.engine.requests] == ["9f2c", ""]


def test_the_headers_of_a_trace_reach_the_engine() -> None:
    """For engines that write spans of their own; a request that is not traced has none."""
    with running() as model:
        for context in ('{"traceparent": "00-1-2-01"}', None):
            model.execute(call := Call(None, context, input_ids=[7], request_output_len=[1]))
            call.next()
        assert [request.trace_headers for request in model.engine.requests] == [{"traceparent": "00-1-2-01"}, {}]


def test_a_bad_request_spoils_no_other() -> None:
    """Triton may hand over several at once."""
    with running() as model:
        bad, good = Call({"op": "dance"}), Call(input_ids=[7], request_output_len=[1])
        model.execute(bad, good)
        assert bad.error().startswith("op:")
        assert good.next()[0]["output_ids"] == [7]


def read(**tensors: Any) -> Any:
    return read_request({name: np.asarray(values) for name, values in {"input_ids": [1, 2, 3], **tensors}.items()}, {})


def test_what_is_not_given_is_not_set() -> None:
    """A prompt alone is a request: greedy, with the stock model's default length and the model's own end."""
    request = read()
    assert (request.prompt, request.max_new_tokens, request.sampling) == ([1, 2, 3], DEFAULT_OUTPUT_TOKENS, Sampling())
    assert (request.end_ids, request.log_probs) == ((), False)


@pytest.mark.parametrize(
    ("tensor", "field"),
    [
        ("temperature", "temperature"),
        ("runtime_top_k", "top_k"),
        ("runtime_top_p", "top_p"),
        ("min_p", "min_p"),
        ("seed", "seed"),
        ("repetition_penalty", "repetition_penalty"),
        ("presence_penalty", "presence_penalty"),
        ("frequency_penalty", "frequency_penalty"),
        ("min_tokens", "min_tokens"),
    ],
)
@pytest.mark.parametrize("value", [0, 1])
def test_sampling_tensors(tensor: str, field: str, value: int) -> None:
    """Each fills its own field and no other, and zero is not the same as not given."""
    assert read(**{tensor: [value]}).sampling == Sampling(**{field: value})


def test_other_tensors() -> None:
    """Length, end token and log probabilities; an end token of zero is one."""
    request = read(request_output_len=[9], end_id=[0], return_log_probs=[True])
    assert (request.max_new_tokens, request.end_ids, request.log_probs) == (9, (0,), True)


def test_shapes_do_not_matter() -> None:
    """Callers of the stock model send a batch dimension."""
    request = read(input_ids=[[4, 5]], request_output_len=[[9]], temperature=[[0.5]])
    assert (request.prompt, request.max_new_tokens, request.sampling.temperature) == ([4, 5], 9, 0.5)


def test_values_are_plain_numbers() -> None:
    """Not numpy's, which other libraries and JSON do not take."""
    request = read(seed=np.asarray([7], np.uint64), end_id=np.asarray([2], np.int32))
    assert (type(request.sampling.seed), type(request.end_ids[0]), type(request.prompt[0])) == (int, int, int)


def test_every_sampling_input_of_the_configuration_is_read() -> None:
    """The template of config.pbtxt offers no tensor that would be taken and ignored."""
    template = Path(__file__).parents[3] / "model_repository/tensorrt_llm/config.pbtxt"
    inputs = template.read_text().split("output [")[0]
    for field in Sampling.__dataclass_fields__:
        assert f'"{field}"' in inputs or f'"runtime_{field}"' in inputs


class Overflowing(StrictEngine):
    """Its load cannot be told, which no part of the loop reckons with."""

    def load(self) -> Load:
        if threading.current_thread().name == "engine":
            raise MemoryError
        return super().load()


def test_a_loop_that_fails_ends_the_process() -> None:
    """Triton would go on saying READY while nobody answers; who watches the process starts the next."""
    codes: SimpleQueue[int] = SimpleQueue()
    model = TidegateModel(lambda options: Overflowing(), codes.put)
    config = {"parameters": {"model_dir": {"string_value": "/models/small"}}}
    model.initialize({"model_name": "tensorrt_llm", "model_version": "1", "model_config": json.dumps(config)})
    assert codes.get(timeout=PATIENCE_S) == 1

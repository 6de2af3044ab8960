"""Answers as Triton gives them, from events that the test plays."""

from __future__ import annotations

import struct
from typing import Any

from tritonclient.grpc.service_pb2 import ModelInferResponse

from router.errors import worker_lost
from router.model import (
    Failed,
    Finished,
    FinishReason,
    Logprobs,
    Queued,
    TextDelta,
    TokenLogprob,
    Usage,
)
from router.tokens import TokenDelta
from router.transport.kserve.answers import Notice, Reply
from router.transport.kserve.asked import read_asked
from tests.unit.router.transport.kserve.requests import TOKENS_MODEL, ask_text, ask_tokens, flag, parameter, request_of, tokens_of

END = (Usage(3, 2, 1), Finished(FinishReason.LENGTH))
STREAMING = flag("streaming")
EMPTY_FINAL = {"parameters": parameter("triton_enable_empty_final_response", bool_param=True)}


class Heard(list[Reply]):
    """Replies that said that they have news."""


def stream_of(*tensors: Any, **fields: Any) -> tuple[Reply, Heard]:
    heard = Heard()
    return Reply(ask_tokens(STREAMING, *tensors, **fields), heard.append), heard


def outputs_of(response: ModelInferResponse) -> dict[str, tuple[list[int], bytes]]:
    """Shape and bytes by name."""
    pairs = zip(response.outputs, response.raw_output_contents, strict=True)
    return {output.name: (list(output.shape), data) for output, data in pairs}


def ids(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def test_a_step_is_a_response() -> None:
    """With the new ids only, and the request's id and model."""
    reply, _ = stream_of(id="9")
    reply.put([TokenDelta([5, 6])])
    (message,) = reply
    told = message.infer_response
    assert (told.id, told.model_name, told.model_version) == ("9", "tensorrt_llm", "1")
    assert outputs_of(told) == {"output_ids": ([1, 1, 2], ids(5, 6)), "sequence_length": ([1, 1], ids(2))}
    assert not told.parameters["triton_final_response"].bool_param


def test_steps_that_nobody_read_are_one_response() -> None:
    """The news is told once, until it is written."""
    reply, heard = stream_of()
    for token in (5, 6):
        reply.put([TokenDelta([token])])
    assert len(heard) == 1
    assert [outputs_of(it.infer_response)["output_ids"][1] for it in reply] == [ids(5, 6)]
    reply.put([TokenDelta([7])])
    assert len(heard) == 2


def test_the_last_response_says_how_it_ended_and_what_it_used() -> None:
    """It has the outputs of any other, without tokens, as TensorRT-LLM's may have."""
    reply, _ = stream_of()
    reply.put(END)
    (message,) = reply
    told = message.infer_response
    assert outputs_of(told) == {"output_ids": ([1, 1, 0], b""), "sequence_length": ([1, 1], ids(0))}
    parameters = {name: getattr(it, it.WhichOneof("parameter_choice")) for name, it in told.parameters.items()}
    assert parameters == {
        "triton_final_response": True,
        "finish_reason": "length",
        "prompt_tokens": 3,
        "cached_tokens": 1,
        "completion_tokens": 2,
    }


def test_a_caller_who_can_take_an_empty_last_response_gets_one() -> None:
    """Tokens that were not read by then come with the end."""
    reply, _ = stream_of(**EMPTY_FINAL)
    reply.put(END)
    assert [outputs_of(message.infer_response) for message in reply] == [{}]
    reply, _ = stream_of(**EMPTY_FINAL)
    reply.put([TokenDelta([5])])
    reply.put(END)
    (message,) = reply
    assert outputs_of(message.infer_response)["output_ids"] == ([1, 1, 1], ids(5))
    assert message.infer_response.parameters["triton_final_response"].bool_param


def test_an_answer_that_is_not_streamed_waits_for_its_end() -> None:
    """And begins with the prompt."""
    heard = Heard()
    reply = Reply(ask_tokens(), heard.append)
    reply.put([TokenDelta([8])])
    assert not heard
    reply.put([TokenDelta([9])])
    reply.put(END)
    assert heard == [reply]
    response = ModelInferResponse()
    reply.write(response)
    assert outputs_of(response)["output_ids"] == ([1, 1, 5], ids(5, 6, 7, 8, 9))
    assert outputs_of(response)["sequence_length"] == ([1, 1], ids(5))


def test_an_answer_without_the_prompt() -> None:
    """Where the caller does not want it."""
    reply = Reply(ask_tokens(flag("exclude_input_in_output")))
    reply.put([TokenDelta([8])])
    reply.put(END)
    response = ModelInferResponse()
    reply.write(response)
    assert outputs_of(response)["output_ids"] == ([1, 1, 1], ids(8))


def test_text_is_told_without_the_batch_dimension() -> None:
    """As NVIDIA's own postprocessing tells it."""
    reply = Reply(ask_text(flag("stream")))
    reply.put([TextDelta("hé"), TextDelta("llo")])
    (message,) = reply
    assert outputs_of(message.infer_response) == {"text_output": ([1], b"\6\0\0\0" + "héllo".encode())}


def test_the_answer_has_the_prompts_form() -> None:
    """A caller who sends no batch dimension gets none."""
    plain = request_of(("input_ids", "INT32", [2], [5, 6]), ("request_output_len", "INT32", [1], [1]), STREAMING)
    reply = Reply(read_asked(plain, TOKENS_MODEL))
    reply.put([TokenDelta([7, 8])])
    (message,) = reply
    assert outputs_of(message.infer_response) == {"output_ids": ([2], ids(7, 8)), "sequence_length": ([1], ids(2))}


def test_log_probs_are_those_of_the_whole_answer() -> None:
    """As TensorRT-LLM's are, with their sum; the caller takes its own share from the end."""
    reply, _ = stream_of(flag("return_log_probs"))
    for token in (1, 2):
        reply.put([TokenDelta([token], [-token / 2])])
        (message,) = reply
    told = outputs_of(message.infer_response)
    assert told["output_log_probs"] == ([1, 1, 2], floats(-0.5, -1.0))
    assert told["cum_log_probs"] == ([1, 1], floats(-1.5))


def test_log_probs_of_text_are_told_with_it() -> None:
    """One for each token, of text that is held back too."""
    reply = Reply(ask_text(flag("stream"), flag("return_log_probs")))
    reply.put([Logprobs([TokenLogprob(1, b"h", -1.0)])])
    reply.put([TextDelta("hi"), Logprobs([TokenLogprob(2, b"i", -2.0)])])
    (message,) = reply
    assert outputs_of(message.infer_response)["output_log_probs"] == ([1, 1, 2], floats(-1.0, -2.0))


def test_only_the_outputs_that_are_wanted_are_given() -> None:
    """Those that the request lists."""
    request = tokens_of(STREAMING)
    request.outputs.add(name="sequence_length")
    reply, _ = stream_of(outputs=request.outputs)
    reply.put([TokenDelta([5])])
    (message,) = reply
    assert outputs_of(message.infer_response) == {"sequence_length": ([1, 1], ids(1))}


def test_a_failure_is_text_behind_the_tokens_before_it() -> None:
    """On a stream that goes on; the response of a failure has the request's id and no outputs."""
    reply, heard = stream_of(id="9")
    reply.put([TokenDelta([5])])
    reply.put([Usage(3, 1), Failed(worker_lost())])
    tokens, failure = reply
    assert outputs_of(tokens.infer_response)["output_ids"][1] == ids(5)
    assert not tokens.infer_response.parameters["triton_final_response"].bool_param
    assert failure.error_message == "WORKER_LOST: the worker was lost; the answer is incomplete"
    assert (failure.infer_response.id, len(failure.infer_response.outputs)) == ("9", 0)
    assert failure.infer_response.parameters["triton_final_response"].bool_param
    assert len(heard) == 1


def test_a_failure_that_comes_while_tokens_are_written_is_told_once() -> None:
    """The stream hears of it again, and finds only the failure."""
    reply, heard = stream_of()
    reply.put([TokenDelta([5])])
    written = iter(reply)
    assert not next(written).error_message
    reply.put([Failed(worker_lost())])
    assert not list(written)
    assert [bool(message.error_message) for message in heard[1]] == [True]


def test_an_answer_that_failed_whole_tells_only_that() -> None:
    """Half of an answer that was not to be streamed is none."""
    reply = Reply(ask_tokens())
    reply.put([TokenDelta([5]), Queued(1, 1.0, 1.0, 1.0)])
    reply.put([Failed(worker_lost())])
    assert [bool(message.error_message) for message in reply] == [True]


def test_a_notice_may_say_nothing() -> None:
    """The answer to a request that asked to end another."""
    (message,) = Notice("tensorrt_llm", "9")
    assert (message.error_message, message.infer_response.id, len(message.infer_response.outputs)) == ("", "9", 0)
    assert message.infer_response.parameters["triton_final_response"].bool_param

"""Answers by Triton's own service on the router's port, asked for by NVIDIA's own client."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import InferenceServerClient, InferResult
from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from tritonclient.utils import InferenceServerException

from router.text.tokenizer import Tokenizer
from server.engine.base import Request
from server.engine.scripted import log_prob_of
from tests.bench.calls import failure_of
from tests.bench.kserve import (
    STREAM,
    Tensors,
    ids_of,
    parameters_of,
    stream,
    text_of,
    text_request,
    tokens_request,
    triton_client,
    write_request,
)
from tests.bench.tenants import entries
from tests.bench.waiting import until
from tests.bench.whole import run_bench
from tests.bench.worker import End, Finish, Wait, Worker

PROMPT = [5, 6, 7]
TEXT_STREAM: Tensors = {"stream": ("BOOL", [[True]])}


def one_by_one(request: Request) -> Iterator[Any]:
    """A token a step, as long as it is asked to."""
    return ("a" for _ in range(request.max_new_tokens))


async def test_a_streamed_answer_is_a_response_for_each_step(chatml: Path) -> None:
    """Each echoes the request's id; the last has no tokens, and says that it is the last, how the turn ended and what it used."""
    worker = Worker(chatml, ["he", "llo"])
    async with run_bench(chatml, worker) as router, triton_client(router.target) as client:
        told = await stream(client, tokens_request(PROMPT, 16, STREAM, request_id="7"))
    assert [ids_of([it]) for it in told] == [list(worker.tokens_of("he")), list(worker.tokens_of("llo")), []]
    assert {(it.get_response().id, it.get_response().model_name) for it in told} == {("7", "tensorrt_llm")}
    assert [it.as_numpy("output_ids").shape for it in told] == [(1, 1, 2), (1, 1, 3), (1, 1, 0)]
    assert [it.as_numpy("sequence_length").tolist() for it in told] == [[[2]], [[3]], [[0]]]
    assert [parameters_of(it) for it in told[:-1]] == [{"triton_final_response": False}] * 2
    end = {"finish_reason": "stop", "prompt_tokens": 3, "cached_tokens": 0, "completion_tokens": 5}
    assert parameters_of(told[-1]) == {"triton_final_response": True, **end}


async def test_a_caller_may_ask_for_an_empty_last_response(chatml: Path) -> None:
    """As perf_analyzer does, which would take any outputs for tokens, and here NVIDIA's client without asyncio."""
    async with run_bench(chatml, Worker(chatml, ["hello"])) as router:
        told = await asyncio.to_thread(stream_in_thread, router.target, tokens_request(PROMPT, 16, STREAM))
    assert len(told[-1].get_response().outputs) == 0
    assert parameters_of(told[-1])["finish_reason"] == "stop"
    assert len(ids_of(told)) == 5


def stream_in_thread(target: str, request: dict[str, Any]) -> list[InferResult]:
    """All that comes on a stream of one request, by callbacks."""
    told: list[InferResult] = []
    with InferenceServerClient(target) as client:
        client.start_stream(lambda result, error: told.append(result or error))
        client.async_stream_infer(**request, enable_empty_final_response=True)
        client.stop_stream()
    return told


async def test_an_answer_that_is_not_streamed_is_one_response(chatml: Path) -> None:
    """By either method, with the prompt before it unless the caller does not want that."""
    worker = Worker(chatml, ["he", "llo"])
    hello = list(worker.tokens_of("hello"))
    async with run_bench(chatml, worker) as router, triton_client(router.target) as client:
        single = await client.infer(**tokens_request(PROMPT, 16, request_id="8"))
        (streamed,) = await stream(client, tokens_request(PROMPT, 16, {"exclude_input_in_output": ("BOOL", [[True]])}))
    assert (ids_of([single]), single.get_response().id) == (PROMPT + hello, "8")
    assert single.as_numpy("sequence_length").tolist() == [[8]]
    assert ids_of([streamed]) == hello
    assert parameters_of(single)["finish_reason"] == parameters_of(streamed)["finish_reason"] == "stop"


async def test_text_goes_in_and_comes_out(chatml: Path) -> None:
    """By the model `ensemble`, without the chat template; streamed in whole characters, else behind the text that it continues."""
    worker = Worker(chatml, [b"h\xc3", b"\xa9", "llo"])
    async with run_bench(chatml, worker) as router, triton_client(router.target) as client:
        told = await stream(client, text_request("say ", 16, TEXT_STREAM))
        single = await client.infer(**text_request("say ", 16))
    assert [text_of([it]) for it in told] == ["h", "é", "llo", ""]
    assert text_of([single]) == "say héllo"
    assert {tuple(request.prompt) for request in worker.engine.requests} == {tuple(Tokenizer.load(chatml).encode_text("say "))}


async def test_what_the_caller_asks_reaches_the_engine(chatml: Path) -> None:
    """Sampling, length and prompt; what the router does itself does not, and neither do parameters of the worker's own protocol."""
    worker = Worker(chatml)
    asked: Tensors = {
        "temperature": ("FP32", [[0.5]]),
        "runtime_top_k": ("INT32", [[4]]),
        "seed": ("UINT64", [[2**63]]),
        "min_tokens": ("INT32", [[2]]),
        "beam_width": ("INT32", [[1]]),
        "end_id": ("INT32", [[2]]),
    }
    async with run_bench(chatml, worker) as router, triton_client(router.target) as client:
        await client.infer(**tokens_request(PROMPT, 16, asked, parameters={"op": "attach", "lane": "x", "account": "y"}))
    (request,) = worker.engine.requests
    assert (list(request.prompt), request.max_new_tokens, request.sampling.min_tokens) == (PROMPT, 16, 2)
    assert (request.sampling.temperature, request.sampling.top_k, request.sampling.seed) == (0.5, 4, 2**63)


async def test_requests_of_one_stream_interleave(chatml: Path) -> None:
    """Fifty at once, each with its own answer under its own id; half-closing lets them complete."""
    worker = Worker(chatml, one_by_one)
    async with run_bench(chatml, worker) as router, triton_client(router.target) as client:
        told = await stream(client, *(tokens_request(PROMPT, size, STREAM, request_id=str(size)) for size in range(1, 51)))
    sizes = Counter(it.get_response().id for it in told for _ in ids_of([it]))
    assert sizes == {str(size): size for size in range(1, 51)}
    assert told[0].get_response().id != told[-1].get_response().id


async def test_stop_words_end_an_answer(chatml: Path) -> None:
    """Of ids they are part of it, as TensorRT-LLM's are, and may have many tokens; of text they are not."""
    worker = Worker(chatml, ["hel", "lo", "hello"])
    stop = list(worker.tokens_of("lo"))
    ids: Tensors = {"stop_words_list": ("INT32", [[[*stop, 0], [2, -1, -1]]]), **STREAM}
    async with run_bench(chatml, worker) as router, triton_client(router.target) as client:
        told = await stream(client, tokens_request(PROMPT, 30, ids))
        text = await stream(client, text_request("x", 30, {"stop_words": ("BYTES", [["lo", ""]]), **TEXT_STREAM}))
    assert ids_of(told) == list(worker.tokens_of("hello"))
    assert text_of(text) == "hel"
    assert parameters_of(told[-1])["finish_reason"] == parameters_of(text[-1])["finish_reason"] == "stop"


async def test_log_probs_are_told_as_tensorrt_llm_tells_them(chatml: Path) -> None:
    """Those of the whole answer so far, with their sum."""
    worker = Worker(chatml, ["ab", "c"])
    ids = list(worker.tokens_of("abc"))
    async with run_bench(chatml, worker) as router, triton_client(router.target) as client:
        told = await stream(client, tokens_request(PROMPT, 16, {**STREAM, "return_log_probs": ("BOOL", [[True]])}))
    assert told[0].as_numpy("output_log_probs").tolist() == [[[log_prob_of(token) for token in ids[:2]]]]
    assert told[-1].as_numpy("output_log_probs").tolist() == [[[log_prob_of(token) for token in ids]]]
    assert told[-1].as_numpy("cum_log_probs").tolist() == [[pytest.approx(sum(map(log_prob_of, ids)))]]


async def test_a_request_that_fails_leaves_the_others_alone(chatml: Path) -> None:
    """It is told as text, under its own id, on a stream that goes on; another model, another shape, ids that the model lacks."""
    worker = Worker(chatml)
    wrong = [
        (write_request("gpt", {}, request_id="1"), "MODEL_UNKNOWN: no such model"),
        (write_request("tensorrt_llm", {}, request_id="2"), "FIELD_INVALID: input_ids: must be given"),
        (tokens_request([999], 1, request_id="3"), "FIELD_INVALID: input_ids: must hold at least one token id, each from 0 to 265"),
        (tokens_request(PROMPT, 0, request_id="4"), "FIELD_INVALID: request_output_len: must be at least 1"),
        (tokens_request([5] * 3000, 1, request_id="5"), "PROMPT_TOO_LONG: This model's maximum context length is "),
        (tokens_request(PROMPT, 1, {"beam_width": ("INT32", [[2]])}, request_id="6"), "OPTION_UNSUPPORTED: beam_width: only 1"),
    ]
    async with run_bench(chatml, worker) as router, triton_client(router.target) as client:
        told = await stream(client, tokens_request(PROMPT, 16, STREAM), *(request for request, _ in wrong), tokens_request(PROMPT, 16))
        assert sum(isinstance(it, InferenceServerException) for it in told) == len(wrong)
        assert len(ids_of([it for it in told if not isinstance(it, InferenceServerException)])) == 2 + 3 + 2
        for request, words in wrong:
            (error,) = await stream(client, request)
            assert words in error.message()
    assert worker.calls == 2


async def test_faults_name_the_inputs(chatml: Path) -> None:
    """As the caller has named them, whatever they are called in other protocols."""
    guide = {"guided_decoding_guide_type": ("BYTES", [["regex"]]), "guided_decoding_guide": ("BYTES", [["("]])}
    wrong = [
        (tokens_request(PROMPT, 1, {"runtime_top_k": ("INT32", [[-1]])}), "runtime_top_k: must be from 0 to 2147483647"),
        (text_request("", 1), "text_input: must not be empty"),
        (text_request("a", 1, {"temperature": ("FP32", [[3.0]]), "top_p": ("FP32", [[2.0]])}), "temperature: must be from 0 to 2"),
        (text_request("a", 1, {"top_p": ("FP32", [[2.0]])}), "top_p: must be above 0 and at most 1"),
        (text_request("a", 1, {"min_tokens": ("INT32", [[2]])}), "min_tokens: must not exceed the most tokens asked for"),
        (text_request("a", 1, {"stop_words": ("BYTES", [["x" * 300]])}), "stop_words: must have from 1 to 256 characters"),
        (text_request("a", 1, guide), "guided_decoding_guide: unbalanced"),
    ]
    worker = Worker(chatml, [End(Finish.REFUSED, "guided_decoding_guide: unbalanced")])
    async with run_bench(chatml, worker) as router, triton_client(router.target) as client:
        for request, words in wrong:
            (error,) = await stream(client, request)
            assert error.message().split(": ", 1)[1] == words
            with pytest.raises(InferenceServerException, match=f"^.*{words}$"):
                await client.infer(**request)


async def test_a_single_call_that_fails_has_a_status(chatml: Path) -> None:
    """With our details; a streamed answer needs a stream, as in Triton."""
    async with run_bench(chatml, Worker(chatml)) as router, grpc.aio.insecure_channel(router.target) as channel:
        stub = GRPCInferenceServiceStub(channel)
        error = await failure_of(stub.ModelInfer(triton.ModelInferRequest(model_name="tensorrt_llm")))
        assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
        async with triton_client(router.target) as client:
            with pytest.raises(InferenceServerException, match="streams and their ends need ModelStreamInfer") as refused:
                await client.infer(**tokens_request(PROMPT, 16, STREAM))
            assert refused.value.status() == "StatusCode.UNIMPLEMENTED"


async def test_a_caller_may_want_a_status_for_a_streams_first_failure(chatml: Path) -> None:
    """By Triton's own header; the other requests of that stream end with it."""
    worker = Worker(chatml, ["a", Wait(1000)])
    async with run_bench(chatml, worker) as router, triton_client(router.target) as client:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            requests = tokens_request(PROMPT, 16), tokens_request(PROMPT, 0, STREAM)
            await stream(client, *requests, headers={"triton_grpc_error": "true"})
        assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_leaving_the_stream_ends_all_its_requests(chatml: Path) -> None:
    """They leave the engine, and what they made is in the ledger."""
    worker = Worker(chatml, ["a", Wait(1000)])
    async with run_bench(chatml, worker) as router, triton_client(router.target) as client:
        call = client.stream_infer(endless(tokens_request(PROMPT, 100, STREAM), times=5))
        async for _ in call:
            if worker.calls == 5:
                break
        call.cancel()
        await until(lambda: worker.engine.cancelled == 5 and router.turns_in_lanes() == 0)
        assert {(entry.finish, entry.completion_tokens) for entry in await entries(router)} <= {("cancelled", 1), ("cancelled", 0)}


async def endless(request: dict[str, Any], times: int) -> Any:
    """Requests on a stream that is not half-closed."""
    for _ in range(times):
        yield request
    await asyncio.Event().wait()


async def test_leaving_a_single_call_ends_its_request(chatml: Path) -> None:
    """When its deadline passes."""
    worker = Worker(chatml, ["a", Wait(1000)])
    async with run_bench(chatml, worker) as router, triton_client(router.target) as client:
        with pytest.raises(InferenceServerException, match="Deadline Exceeded"):
            await client.infer(**tokens_request(PROMPT, 100), client_timeout=0.3)
        await until(lambda: worker.engine.cancelled == 1)


async def test_a_request_is_stopped_as_tensorrt_llm_stops_one(chatml: Path) -> None:
    """By another on its stream that has its id and the tensor `stop`; what it made stays told, and its neighbours go on."""
    worker = Worker(chatml, ["a", Wait(1000)])
    dummy: Tensors = {"input_lengths": ("INT32", [[0]]), "stop": ("BOOL", [[True]])}

    async def ask() -> Any:
        yield tokens_request(PROMPT, 100, STREAM, request_id="1")
        yield tokens_request(PROMPT, 100, STREAM, request_id="2")
        await until(lambda: router.turns_in_lanes() == 2)
        yield tokens_request([0], 0, dummy, request_id="1")
        yield tokens_request([0], 0, dummy, request_id="unknown")
        await until(lambda: worker.engine.cancelled == 1)
        yield tokens_request([0], 0, dummy, request_id="2")

    async with run_bench(chatml, worker) as router, triton_client(router.target) as client:
        told = [(result.get_response(), parameters_of(result)) async for result, error in client.stream_infer(ask()) if error is None]
    ended = [(response.id, how["finish_reason"]) for response, how in told if "finish_reason" in how]
    confirmed = [response.id for response, how in told if not response.outputs and how == {"triton_final_response": True}]
    assert ended == [("1", "cancelled"), ("2", "cancelled")]
    assert confirmed == ["1", "unknown", "2"]

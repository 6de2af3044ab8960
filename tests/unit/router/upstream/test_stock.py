"""The stock model's wire contract, as tensors and texts."""

from __future__ import annotations

import struct

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.model_config_pb2 import ModelConfig

from router.model import GenerationRequest, Sampling, WorkerFinish
from router.upstream import contract, stock
from server.engine_build import OURS
from tests.unit.router.upstream.fake_triton import FACTS, stock_config


def our_config() -> ModelConfig:
    return text_format.Parse((OURS / "tensorrt_llm/config.pbtxt").read_text(), ModelConfig())


def test_the_kinds_are_told_apart() -> None:
    """By what the model takes and gives, not by its name or backend: the stock model exists in C++ and in Python."""
    ours, stocks = our_config(), [stock_config(triton_backend=backend) for backend in ("tensorrtllm", "python")]
    assert contract.is_lane_model(ours)
    assert not stock.is_stock(ours)
    assert all(stock.is_stock(config) and not contract.is_lane_model(config) for config in stocks)


def test_a_stock_model_that_cannot_stream_is_no_worker() -> None:
    """Without decoupled responses it would answer in one piece, and its streams one after the other."""
    assert not stock.is_stock(stock_config(decoupled_mode="false"))


def test_an_unset_configuration_is_described_by_the_models_folder() -> None:
    """`${name}` counts as unset."""
    described = stock.describe(stock_config(), FACTS)
    assert (described.model, described.engine, described.vocabulary) == ("small", "tensorrtllm", 266)
    assert (described.context_tokens, described.pool_tokens, described.max_sequences) == (2048, 2048, 8)


def test_the_configuration_bounds_what_the_folder_says() -> None:
    """The engine may be shorter than the model, and the KV cache hold more or less than one context."""
    described = stock.describe(stock_config(max_seq_len="512", max_tokens_in_paged_kv_cache="100000"), FACTS)
    assert (described.context_tokens, described.pool_tokens) == (512, 100_000)
    assert stock.describe(stock_config(max_seq_len="4096"), FACTS).context_tokens == 2048


def tensors(request: triton.ModelInferRequest) -> dict[str, tuple[list[int], bytes]]:
    raw = zip(request.inputs, request.raw_input_contents, strict=True)
    return {tensor.name: (list(tensor.shape), data) for tensor, data in raw}


def test_every_tensor_has_a_batch_dimension() -> None:
    """Also those that are scalars; the outputs that must be asked for are, and the id is the one given."""
    asked = GenerationRequest([5, 6, 7], 20, Sampling(temperature=0.5, top_k=3))
    request = stock.generate("a-1", asked, (2, 0, 9))
    told = tensors(request)
    assert told["input_ids"] == ([1, 3], struct.pack("<3i", 5, 6, 7))
    assert told["input_lengths"] == ([1, 1], struct.pack("<i", 3))
    assert told["request_output_len"] == ([1, 1], struct.pack("<i", 20))
    assert told["end_id"] == told["pad_id"] == ([1, 1], struct.pack("<i", 2))
    assert told["streaming"] == ([1, 1], b"\x01")
    assert told["stop_words_list"] == ([1, 2, 2], struct.pack("<4i", 0, 9, 1, 2))
    assert told["runtime_top_k"] == ([1, 1], struct.pack("<i", 3))
    assert [output.name for output in request.outputs] == ["output_ids", "sequence_length"]
    assert request.id == "a-1"


def test_a_single_end_token_needs_no_stop_words() -> None:
    """An empty list is not a valid one."""
    assert "stop_words_list" not in tensors(stock.generate("a-1", GenerationRequest([5], 1, Sampling()), (2,)))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Sampling(), Sampling()),
        (Sampling(presence_penalty=1.0), Sampling(presence_penalty=1.0)),
        (Sampling(temperature=0.0, top_p=0.5), Sampling(top_k=1)),
        (Sampling(temperature=0.7), Sampling(temperature=0.7, top_p=1.0)),
        (Sampling(seed=1), Sampling(seed=1, top_p=1.0)),
        (Sampling(temperature=0.7, top_k=0), Sampling(temperature=0.7, top_k=0, top_p=1.0)),
        (Sampling(temperature=0.7, top_k=40), Sampling(temperature=0.7, top_k=40)),
        (Sampling(temperature=0.7, top_p=0.9), Sampling(temperature=0.7, top_p=0.9)),
    ],
)
def test_sampling_means_what_it_means_elsewhere(asked: Sampling, told: Sampling) -> None:
    """The executor is greedy without top-k and top-p; our own engines sample as soon as a temperature above zero or a seed is given."""
    assert stock.in_engine_terms(asked) == told


def answer(ids: list[int], length: int, *, final: bool = False) -> triton.ModelInferResponse:
    outputs = [triton.ModelInferResponse.InferOutputTensor(name=name) for name in ("output_ids", "sequence_length")]
    response = triton.ModelInferResponse(
        outputs=outputs, raw_output_contents=[struct.pack(f"<{len(ids)}i", *ids), struct.pack("<i", length)]
    )
    response.parameters["triton_final_response"].bool_param = final
    return response


def test_a_delta_is_as_long_as_it_says() -> None:
    """What lies behind is padding."""
    assert stock.read_delta(answer([5, 6, -1], 2)) == ([5, 6], False)
    assert stock.read_delta(answer([], 0, final=True)) == ([], True)


def test_a_final_response_may_have_no_outputs() -> None:
    """Triton makes such a one when the model sends its end without an answer."""
    bare = triton.ModelInferResponse()
    bare.parameters["triton_final_response"].bool_param = True
    assert stock.read_delta(bare) == ([], True)


@pytest.mark.parametrize("response", [triton.ModelInferResponse(), answer([5], 2), answer([5], -1)])
def test_what_is_no_answer_is_told_as_such(response: triton.ModelInferResponse) -> None:
    """In an orderly way, which ends one generation."""
    with pytest.raises(stock.ResponseInvalid):
        stock.read_delta(response)


def test_a_tensor_of_the_wrong_size_is_no_answer() -> None:
    """A number that is cut."""
    response = answer([5], 1)
    response.raw_output_contents[1] = b"\x01"
    with pytest.raises(stock.ResponseInvalid):
        stock.read_delta(response)


def test_an_answer_ends_by_length_only_when_full() -> None:
    """Counted in tokens that were given out."""
    assert [stock.Deltas({2}, 3).take([7] * count, True)[1] for count in (2, 3)] == [WorkerFinish.END_ID, WorkerFinish.LENGTH]


def test_an_end_token_in_the_last_place_is_not_length() -> None:
    """The engine emits those that are stop words; it made as many tokens as allowed, yet the model had finished."""
    assert stock.Deltas({2, 0}, 3).take([7, 7, 0], True) == ([7, 7], WorkerFinish.END_ID)


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=8))
def test_deltas_are_what_comes_before_the_end_token(deltas: list[list[int]]) -> None:
    """However the tokens are cut into deltas, and whether or not the end token is in them."""
    follow, given = stock.Deltas({0, 1}, 100), [token for delta in deltas for token in delta]
    taken = [follow.take(delta, at == len(deltas) - 1) for at, delta in enumerate(deltas)]
    end = next((at for at, token in enumerate(given) if token in (0, 1)), len(given))
    assert [token for tokens, _ in taken for token in tokens] == given[:end]
    assert [finish for _, finish in taken] == [WorkerFinish.RUNNING] * (len(deltas) - 1) + [WorkerFinish.END_ID]


TOO_LONG = "Executor failed ... fetching new request: Prompt length (70) exceeds maximum input length (64). Set log level ..."


@pytest.mark.parametrize(
    ("text", "has_tokens", "reason"),
    [
        ("Maximum queue size of 4 has been reached, please try again later", False, "WORKER_FULL"),
        ("[request id: 7] Exceeds maximum queue size", False, "WORKER_FULL"),
        (TOO_LONG, False, "PROMPT_TOO_LONG"),
        ("something else", False, "ENGINE_REFUSED"),
        ("something else", True, "ENGINE_FAILED"),
    ],
)
def test_errors_are_told_by_their_text(text: str, has_tokens: bool, reason: str) -> None:
    """None of them shows the text itself."""
    error = stock.to_error(text, has_tokens=has_tokens)
    assert error.reason == reason
    assert text not in error.message

"""The stock model's wire contract, as tensors and texts."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.model_config_pb2 import ModelConfig

from router.errors import CallerError
from router.model import GenerationRequest, Guide, GuideKind, Sampling, WorkerDelta, WorkerFinish
from router.upstream import contract, stock
from server.build import TEMPLATE
from tests.unit.router.upstream.fake_triton import FACTS, stock_config


def our_config() -> ModelConfig:
    return text_format.Parse((TEMPLATE / "tensorrt_llm/config.pbtxt").read_text(), ModelConfig())


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
    model = stock.read_model(stock_config(), FACTS)
    described = model.description
    assert (described.model, described.engine, described.vocabulary) == ("small", "tensorrtllm", 266)
    assert (described.context_tokens, described.pool_tokens, described.max_sequences) == (2048, 2048, 8)
    assert (model.end_ids, model.guided) == ((2, 0), False)


def test_the_configuration_bounds_what_the_folder_says() -> None:
    """The engine may be shorter than the model, and the KV cache hold more or less than one context."""
    described = stock.read_model(stock_config(max_seq_len="512", max_tokens_in_paged_kv_cache="100000"), FACTS).description
    assert (described.context_tokens, described.pool_tokens) == (512, 100_000)
    assert stock.read_model(stock_config(max_seq_len="4096"), FACTS).description.context_tokens == 2048


def test_a_stock_worker_keeps_tenants_apart_only_without_reuse() -> None:
    """It takes no salt, and reuses prefixes when nothing is said."""
    configs = [stock_config(), *(stock_config(enable_kv_cache_reuse=text) for text in ("true", "false"))]
    assert [stock.read_model(config, FACTS).description.isolates_salts for config in configs] == [False, False, True]


MODEL = stock.read_model(stock_config(guided_decoding_backend="xgrammar"), FACTS)
SEED = 77


def tensors(request: triton.ModelInferRequest) -> dict[str, tuple[list[int], bytes]]:
    raw = zip(request.inputs, request.raw_input_contents, strict=True)
    return {tensor.name: (list(tensor.shape), data) for tensor, data in raw}


def test_every_tensor_has_a_batch_dimension() -> None:
    """Also those that are scalars; the outputs that must be asked for are, and the id is the one given."""
    asked = GenerationRequest([5, 6, 7], 20, Sampling(temperature=0.5, top_k=3))
    request = stock.generate("a-1", asked, replace(MODEL, end_ids=(2, 0, 9)), SEED)
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
    request = stock.generate("a-1", GenerationRequest([5], 1, Sampling()), replace(MODEL, end_ids=(2,)), SEED)
    assert "stop_words_list" not in tensors(request)


def test_options_are_passed_on() -> None:
    """Texts have a batch dimension too; log probabilities are an output more."""
    guide = Guide(GuideKind.REGEX, "a+")
    asked = GenerationRequest([5], 9, Sampling(), min_new_tokens=3, guide=guide, log_probs=True)
    request = stock.generate("a-1", asked, MODEL, SEED)
    told = tensors(request)
    assert told["min_tokens"] == ([1, 1], struct.pack("<i", 3))
    assert told["return_log_probs"] == ([1, 1], b"\x01")
    assert told["guided_decoding_guide_type"] == ([1, 1], struct.pack("<I", 5) + b"regex")
    assert told["guided_decoding_guide"] == ([1, 1], struct.pack("<I", 2) + b"a+")
    assert [output.name for output in request.outputs] == ["output_ids", "sequence_length", "output_log_probs"]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (GenerationRequest([5], 9, Sampling(min_p=0.1)), "sampling.min_p"),
        (GenerationRequest([5], 9, Sampling(), guide=Guide(GuideKind.JSON)), "response_format"),
    ],
)
def test_what_the_model_cannot_do_is_refused(asked: GenerationRequest, field: str) -> None:
    """Rather than left out: the stock model has no min-p, and guides only with a backend for them."""
    with pytest.raises(CallerError) as refused:
        stock.generate("a-1", asked, replace(MODEL, guided=False), SEED)
    assert (refused.value.reason, refused.value.violations[0].field) == ("OPTION_UNSUPPORTED", field)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Sampling(), Sampling(top_k=1)),
        (Sampling(presence_penalty=1.0), Sampling(presence_penalty=1.0, top_k=1)),
        (Sampling(temperature=0.0, top_p=0.5, seed=1), Sampling(top_k=1, seed=1)),
        (Sampling(temperature=0.7, top_k=1), Sampling(top_k=1)),
        (Sampling(temperature=0.7), Sampling(temperature=0.7, top_p=1.0, seed=SEED)),
        (Sampling(seed=1), Sampling(seed=1, top_p=1.0)),
        (Sampling(temperature=0.7, top_k=0), Sampling(temperature=0.7, top_k=0, top_p=1.0, seed=SEED)),
        (Sampling(temperature=0.7, top_k=40, seed=0), Sampling(temperature=0.7, top_k=40, seed=0)),
        (Sampling(top_p=0.9), Sampling(top_p=0.9, seed=SEED)),
    ],
)
def test_sampling_means_what_it_means_elsewhere(asked: Sampling, told: Sampling) -> None:
    """The executor is greedy without top-k and top-p, and gives all who name no seed the same; our own engines are not, and do not."""
    assert stock.in_engine_terms(asked, SEED) == told


def answer(ids: list[int], length: int, *, log_probs: list[float] | None = None, final: bool = False) -> triton.ModelInferResponse:
    response = triton.ModelInferResponse()
    contents = {"output_ids": struct.pack(f"<{len(ids)}i", *ids), "sequence_length": struct.pack("<i", length)}
    if log_probs is not None:
        contents["output_log_probs"] = struct.pack(f"<{len(log_probs)}f", *log_probs)
    for name, data in contents.items():
        response.outputs.add(name=name)
        response.raw_output_contents.append(data)
    response.parameters["triton_final_response"].bool_param = final
    return response


def test_a_response_is_as_long_as_it_says() -> None:
    """What lies behind is padding."""
    assert stock.read_response(answer([5, 6, -1], 2)) == stock.Response([5, 6], None, False)
    assert stock.read_response(answer([], 0, final=True)) == stock.Response([], None, True)


def test_log_probabilities_are_those_of_the_new_tokens() -> None:
    """The engine sends those of the whole answer each time."""
    assert stock.read_response(answer([5, 6], 2, log_probs=[-3.0, -0.5, -0.25])).log_probs == [-0.5, -0.25]
    assert stock.read_response(answer([], 0, log_probs=[-3.0, -0.5])).log_probs == []


def test_a_final_response_may_have_no_outputs() -> None:
    """Triton makes such a one when the model sends its end without an answer."""
    bare = triton.ModelInferResponse()
    bare.parameters["triton_final_response"].bool_param = True
    assert stock.read_response(bare) == stock.Response([], None, True)


@pytest.mark.parametrize("response", [triton.ModelInferResponse(), answer([5], 2), answer([5], -1), answer([5, 6], 2, log_probs=[-0.5])])
def test_what_is_no_answer_is_told_as_such(response: triton.ModelInferResponse) -> None:
    """In an orderly way, which ends one generation."""
    with pytest.raises(stock.ResponseInvalid):
        stock.read_response(response)


def test_a_tensor_of_the_wrong_size_is_no_answer() -> None:
    """A number that is cut."""
    response = answer([5], 1)
    response.raw_output_contents[1] = b"\x01"
    with pytest.raises(stock.ResponseInvalid):
        stock.read_response(response)


def last(*tokens: int) -> stock.Response:
    return stock.Response(tokens, None, True)


def test_an_answer_ends_by_length_only_when_full() -> None:
    """Counted in tokens that were given out."""
    finishes = [stock.Deltas({2}, 3).take(last(*[7] * count)).finish for count in (2, 3)]
    assert finishes == [WorkerFinish.END_ID, WorkerFinish.LENGTH]


def test_an_end_token_in_the_last_place_is_not_length() -> None:
    """The engine emits those that are stop words; it made as many tokens as allowed, yet the model had finished."""
    assert stock.Deltas({2, 0}, 3).take(last(7, 7, 0)) == WorkerDelta((7, 7), WorkerFinish.END_ID)


def test_the_end_tokens_log_probability_goes_with_it() -> None:
    """One for each token that is given out."""
    delta = stock.Deltas({2}, 9).take(stock.Response([7, 2], [-0.5, -0.25], True))
    assert (delta.tokens, delta.log_probs) == ([7], [-0.5])


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=8))
def test_deltas_are_what_comes_before_the_end_token(deltas: list[list[int]]) -> None:
    """However the tokens are cut into deltas, and whether or not the end token is in them."""
    follow, given = stock.Deltas({0, 1}, 100), [token for delta in deltas for token in delta]
    taken = [follow.take(stock.Response(delta, None, at == len(deltas) - 1)) for at, delta in enumerate(deltas)]
    end = next((at for at, token in enumerate(given) if token in (0, 1)), len(given))
    assert [token for delta in taken for token in delta.tokens] == given[:end]
    assert [delta.finish for delta in taken] == [WorkerFinish.RUNNING] * (len(deltas) - 1) + [WorkerFinish.END_ID]


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

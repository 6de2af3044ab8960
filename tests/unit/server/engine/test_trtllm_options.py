"""What TensorRT-LLM is given: by config.pbtxt, by the model folder, and by each request."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from server.build import TEMPLATE, find_placeholders
from server.engine.base import Guide, GuideKind, Request, RequestRefused, Sampling
from server.engine.trtllm_options import describe_model, read_folder, write_sampling
from server.options import EngineOptions, OptionInvalid, read_options
from tests.unit.server.engine.trtllm import END_ID, SECOND_END_ID, ask, build_engine_folder, build_folder, running

PROMPT = (5, 6, 7)
HEADERS = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
SCHEMA = '{"type": "object"}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_folder(tmp_path)


def parameters(**values: str) -> dict[str, dict[str, str]]:
    """As Triton's model configuration has them."""
    return {key: {"string_value": value} for key, value in {"model_dir": "/models/a", **values}.items()}


def asked(folder: Path, request: Request, **options: Any) -> Any:
    """What the library is asked for a request."""
    with running(folder, **options) as (engine, llm):
        ask(engine, request)
        return llm.asked[-1]


# config.pbtxt


def test_every_option_has_a_place_in_our_repository() -> None:
    """And the repository has no place for anything else."""
    assert find_placeholders(TEMPLATE) == set(EngineOptions.__dataclass_fields__)


def test_options_are_read_by_their_type() -> None:
    """Counts, fractions, switches and names; what is left as a placeholder is unset."""
    options = read_options(
        parameters(
            tensor_parallel_size="4",
            max_seq_len="8192",
            max_tokens_in_paged_kv_cache="${max_tokens_in_paged_kv_cache}",
            kv_cache_free_gpu_mem_fraction="0.85",
            enable_chunked_context="False",
            kv_cache_dtype="fp8",
        )
    )
    assert (options.tensor_parallel_size, options.max_seq_len, options.max_tokens_in_paged_kv_cache) == (4, 8192, None)
    assert (options.kv_cache_free_gpu_mem_fraction, options.enable_chunked_context, options.kv_cache_dtype) == (0.85, False, "fp8")


def test_a_gpu_has_larger_batches_unless_told_otherwise() -> None:
    """The defaults are those of a CPU engine otherwise."""
    options = read_options(parameters(engine="tensorrt_llm", max_num_seqs="32"))
    assert (options.max_num_seqs, options.max_num_batched_tokens) == (32, 8192)


@pytest.mark.parametrize("text", ["0", "1.1", "-0.5", "nan", "most", ""])
def test_a_fraction_out_of_range_is_refused(text: str) -> None:
    """By name."""
    with pytest.raises(OptionInvalid, match=r"kv_cache_free_gpu_mem_fraction: must be a number from 0\.001 to 1"):
        read_options(parameters(kv_cache_free_gpu_mem_fraction=text))


# The model folder


def test_a_checkpoint_describes_the_engine(folder: Path) -> None:
    """Context and vocabulary are the model's, and the size of the KV cache is what the library made of it."""
    with running(folder, max_num_seqs=16) as (engine, _):
        description = engine.description
    assert (description.context_tokens, description.vocabulary, description.end_ids) == (512, 1000, (END_ID, SECOND_END_ID))
    assert (description.total_blocks, description.tokens_per_block, description.max_sequences) == (64, 32, 16)
    assert description.isolates_salts


def test_max_seq_len_shortens_the_context(folder: Path) -> None:
    """In the description and in the library."""
    with running(folder, max_seq_len=256) as (engine, llm):
        assert (engine.description.context_tokens, llm.args.max_seq_len, llm.args.max_input_len) == (256, 256, 255)


def test_a_model_of_several_parts_describes_its_text_part(tmp_path: Path) -> None:
    """As multimodal checkpoints have it."""
    folder = build_folder(tmp_path, text_config={"max_position_embeddings": 256, "vocab_size": 70})
    described = read_folder(EngineOptions(folder, "small", "tensorrt_llm"))
    assert (described.context_tokens, described.vocabulary, described.is_engine) == (256, 70, False)


def test_a_model_that_does_not_state_its_context_needs_max_seq_len(tmp_path: Path) -> None:
    """Nothing would bound a request otherwise."""
    folder = build_folder(tmp_path, vocab_size=70)
    with pytest.raises(OptionInvalid, match="max_seq_len: must be set"):
        read_folder(EngineOptions(folder, "small", "tensorrt_llm"))


def test_the_tokenizer_tells_the_end_token_when_the_folder_does_not(folder: Path) -> None:
    """And without either there is no end."""
    (folder / "generation_config.json").unlink()
    options = EngineOptions(folder, "small", "tensorrt_llm")
    assert describe_model(options, read_folder(options), SimpleNamespace(eos_token_id=9)).end_ids == (9,)
    with pytest.raises(OptionInvalid, match="has an end token"):
        describe_model(options, read_folder(options), None)


def test_an_engine_folder_runs_where_the_library_still_can(tmp_path: Path) -> None:
    """Up to 1.2, with the limits it was built with."""
    folder = build_engine_folder(tmp_path)
    with running(folder, release="1.2") as (engine, _):
        assert (engine.description.context_tokens, engine.description.total_blocks) == (512, 64)
    with pytest.raises(OptionInvalid, match="runs no engines since"), running(folder):
        pass


# Arguments of LLM


def test_options_reach_the_library_under_its_names(folder: Path) -> None:
    """Each in its class."""
    options: dict[str, Any] = {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 2,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 4096,
        "enable_kv_cache_reuse": False,
        "max_tokens_in_paged_kv_cache": 1024,
        "kv_cache_free_gpu_mem_fraction": 0.5,
        "kv_cache_host_memory_bytes": 1 << 30,
        "kv_cache_dtype": "fp8",
        "batch_scheduler_policy": "max_utilization",
        "otlp_traces_endpoint": "http://127.0.0.1:4317",
    }
    with running(folder, **options) as (_, llm):
        args, cache = llm.args, llm.args.kv_cache_config
    assert (args.tensor_parallel_size, args.pipeline_parallel_size, args.max_batch_size, args.max_num_tokens) == (2, 2, 16, 4096)
    assert (cache.enable_block_reuse, cache.max_tokens, cache.free_gpu_memory_fraction) == (False, 1024, 0.5)
    assert (cache.host_cache_size, cache.dtype, cache.event_buffer_max_size) == (1 << 30, "fp8", 0)
    assert (args.scheduler_config.capacity_scheduler_policy, args.otlp_traces_endpoint) == ("MAX_UTILIZATION", "http://127.0.0.1:4317")
    assert (args.enable_chunked_prefill, args.guided_decoding_backend, args.return_perf_metrics) == (True, "xgrammar", True)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("profile", "deterministic", "profile: must be fast"),
        ("batch_scheduler_policy", "best", "batch_scheduler_policy: must be one of max_utilization, guaranteed_no_evict"),
    ],
)
def test_options_the_library_does_not_have_are_refused(folder: Path, option: str, value: Any, message: str) -> None:
    """Before anything is loaded."""
    with pytest.raises(OptionInvalid, match=message), running(folder, **{option: value}):
        pass


# Arguments of a request


def test_a_request_is_asked_for_in_tokens(folder: Path) -> None:
    """No text is made, the model's end tokens are passed, and stop words stay in."""
    got = asked(folder, Request(1, PROMPT, 7, stop_ids=(50,)))
    sampling = got.sampling_params
    assert (got.inputs, got.cache_salt, got.lora_request, got.trace_headers) == ([5, 6, 7], None, None, None)
    assert (sampling.end_id, sampling.pad_id, sampling.stop_token_ids) == (END_ID, END_ID, [SECOND_END_ID, 50])
    assert (sampling.max_tokens, sampling.detokenize, sampling.include_stop_str_in_output, sampling.logprobs) == (7, False, True, None)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0, top_p=0.5), Sampling(top_k=1), Sampling(presence_penalty=0.5)])
def test_decoding_is_greedy_unless_asked_to_sample(sampling: Sampling) -> None:
    """Top-k 1 says so in every version."""
    written = write_sampling(sampling)
    assert (written["top_k"], written["presence_penalty"]) == (1, sampling.presence_penalty)
    assert not written.keys() & {"temperature", "top_p", "seed"}


def test_sampling_states_what_is_missing() -> None:
    """Versions differ in what follows from a field that is missing; zero top-k is "all"."""
    written = write_sampling(Sampling(top_p=0.9, seed=11, min_tokens=2))
    assert (written["temperature"], written["top_k"], written["top_p"], written["seed"], written["min_tokens"]) == (1.0, 0, 0.9, 11, 2)


def test_seeds_differ_unless_given() -> None:
    """The library's default is one seed for all."""
    assert write_sampling(Sampling(temperature=1.0))["seed"] != write_sampling(Sampling(temperature=1.0))["seed"]


@pytest.mark.parametrize(
    ("guide", "field", "value"),
    [
        (Guide(GuideKind.JSON), "json_object", True),
        (Guide(GuideKind.JSON_SCHEMA, SCHEMA), "json", SCHEMA),
        (Guide(GuideKind.REGEX, "[ab]+"), "regex", "[ab]+"),
        (Guide(GuideKind.EBNF_GRAMMAR, 'root ::= "a"'), "grammar", 'root ::= "a"'),
    ],
)
def test_guides_have_the_librarys_names(folder: Path, guide: Guide, field: str, value: object) -> None:
    """One of them, and no other."""
    given = asked(folder, Request(1, PROMPT, 2, guide=guide)).sampling_params.guided_decoding
    assert {name: held for name, held in vars(given).items() if held} == {field: value}


@pytest.mark.parametrize("text", ["", "{", "[]", "3"])
def test_a_schema_that_is_none_is_refused(folder: Path, text: str) -> None:
    """Before it gets near the executor."""
    with running(folder) as (engine, _), pytest.raises(RequestRefused, match="guided_decoding_guide: must be a JSON schema"):
        engine.submit(Request(1, PROMPT, 2, guide=Guide(GuideKind.JSON_SCHEMA, text)))


def test_guides_can_be_switched_off(folder: Path) -> None:
    """For models without a tokenizer; a request with a guide is then refused by name."""
    with running(folder, guided_decoding_backend="none") as (engine, llm):
        assert llm.args.guided_decoding_backend is None
        with pytest.raises(RequestRefused, match="guided_decoding_guide_type"):
            engine.submit(Request(1, PROMPT, 2, guide=Guide(GuideKind.JSON)))


@pytest.mark.parametrize(("release", "passed"), [("1.2", None), ("1.3", HEADERS)])
def test_trace_headers_are_passed_where_they_are_known(folder: Path, release: str, passed: object) -> None:
    """1.2 would refuse the whole request for them."""
    assert asked(folder, Request(1, PROMPT, 2, trace_headers=HEADERS), release=release).trace_headers == passed


def test_the_fakes_differ_as_the_releases_do(folder: Path) -> None:
    """The test above would otherwise prove nothing."""
    for release, known in (("1.2", False), ("1.3", True)):
        with running(folder, release=release) as (_, llm):
            assert ("trace_headers" in inspect.signature(llm.generate_async).parameters) is known


def test_a_request_names_its_adapter(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """One of the folders in lora_dir, with a number that stays the same; the library is told of the first only."""
    adapters = tmp_path_factory.mktemp("lora")
    for name in ("legal", "medical"):
        (adapters / name).mkdir()
    (adapters / "README.md").write_text("two adapters")
    with running(folder, lora_dir=str(adapters), max_lora_rank=16) as (engine, llm):
        ask(engine, Request(1, PROMPT, 2, lora="medical"))
        given = llm.asked[-1].lora_request
        assert (given.lora_name, given.lora_int_id, given.lora_path) == ("medical", 2, str(adapters / "medical"))
        assert (llm.args.lora_config.lora_dir, llm.args.lora_config.max_lora_rank) == ([str(adapters / "legal")], 16)
        with pytest.raises(RequestRefused, match="lora: no such adapter; there are legal, medical"):
            engine.submit(Request(2, PROMPT, 2, lora="poetic"))


def test_generation_config_may_have_one_end_token(folder: Path) -> None:
    """A number instead of a list."""
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 7}))
    assert read_folder(EngineOptions(folder, "small", "tensorrt_llm")).end_ids == (7,)

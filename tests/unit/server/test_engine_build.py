"""`tidegate engine build`: what it would run and write, and what it refuses. The commands and errors are cases in tests/cases."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from server.build import find_placeholders
from server.engine_build import STOCK, BuildFailed, Plan, carry_out, main
from server.engine_commands import BUILD_SETTINGS
from server.installation import PACKAGE_ROOT
from server.options import read_options
from server.stock_settings import STOCK_SETTINGS

CASES = PACKAGE_ROOT / "tests/cases/engine_build.txt"


def read_cases() -> Iterator[tuple[str, str]]:
    """Arguments and expected output."""
    text = "\n".join(line for line in CASES.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    for case in filter(str.strip, text.split("\n\n")):
        arguments, expected = case.strip().split("\n----\n")
        yield arguments, expected


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", model_type="llama")


def write_model(folder: Path, **config: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 4096, "vocab_size": 100, **config}))
    return folder


def run(model: Path, *arguments: str) -> int:
    return main(["build", "--model", str(model), "--output", str(model.parent / "out"), *arguments])


def read_config(text: str) -> ModelConfig:
    return text_format.Parse(text, ModelConfig())


def parameters_of(config: ModelConfig) -> Mapping[str, str]:
    """Those that are set."""
    told = {name: value.string_value for name, value in config.parameters.items()}
    return {name: value for name, value in told.items() if not value.startswith("${")}


@pytest.mark.parametrize(("arguments", "expected"), [pytest.param(*case, id=case[0][:60]) for case in read_cases()])
def test_the_cases(model: Path, capsys: pytest.CaptureFixture[str], arguments: str, expected: str) -> None:
    """A dry run prints commands that can be pasted, or one line that says what is wrong; it writes nothing."""
    code = run(model, *shlex.split(arguments), "--dry-run")
    printed = capsys.readouterr()
    shown = printed.err.strip() if code else show_commands(printed.out)
    places = {str(model.parent / "out"): "OUT", str(model): "MODEL", str(PACKAGE_ROOT): "ROOT"}
    for path, name in places.items():
        shown = shown.replace(path, name)
    assert shown == expected
    assert not (model.parent / "out").exists()


def show_commands(plan: str) -> str:
    """The commands of a printed plan, and how to start."""
    commands, _, rest = plan.partition("\n\n")
    return "\n".join([*commands.splitlines()[1:], f"start: {rest.rpartition('# Start')[2].strip()}"])


def test_an_unknown_setting_lists_the_known_ones(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For either kind, its own."""
    for kind, known in (("stock", "batching_strategy"), ("llm-api", "tensor_parallel_size")):
        assert run(model, "--kind", kind, "--set", "kv_cache_fraction=0.5", "--dry-run") == 1
        error = capsys.readouterr().err
        assert error.startswith("SETTING_INVALID: unknown setting 'kv_cache_fraction'; known are ")
        assert known in error


def test_every_place_has_a_setting_and_every_setting_a_place() -> None:
    """The template and the table are two views of one thing."""
    assert find_placeholders(STOCK) == STOCK_SETTINGS.keys() | {"max_seq_len"}
    assert "max_seq_len" in BUILD_SETTINGS


def test_the_stock_repository_is_what_triton_needs(model: Path) -> None:
    """In-flight batching, paged KV cache, its reuse and chunked context are on; what is left to TensorRT-LLM stays unset."""
    assert run(model, "--kind", "stock", "--set", "engine_dir=/engines/a", "--set", "kv_cache_host_memory_bytes=1000") == 0
    folder = model.parent / "out/model_repository/tensorrt_llm"
    assert (folder / "1").is_dir()
    config = read_config((folder / "config.pbtxt").read_text())
    assert (config.backend, config.max_batch_size, config.model_transaction_policy.decoupled) == ("tensorrtllm", 256, True)
    assert config.dynamic_batching.default_queue_policy.max_queue_size == 1024
    assert parameters_of(config) == {
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": "/engines/a",
        "executor_worker_path": "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker",
        "max_beam_width": "1",
        "batch_scheduler_policy": "guaranteed_no_evict",
        "enable_chunked_context": "true",
        "exclude_input_in_output": "true",
        "FORCE_CPU_ONLY_INPUT_TENSORS": "no",
        "enable_kv_cache_reuse": "true",
        "kv_cache_free_gpu_mem_fraction": "0.9",
        "kv_cache_host_memory_bytes": "1000",
        "max_seq_len": "4096",
    }


def test_our_repository_is_one_that_our_model_reads(model: Path) -> None:
    """The LLM API engine on the checkpoint, over all GPUs, with the cache events that the router follows."""
    assert run(model, "--tp", "2", "--pp", "4", "--set", "max_num_seqs=8") == 0
    config = read_config((model.parent / "out/model_repository/tensorrt_llm/config.pbtxt").read_text())
    told = read_options({name: {"string_value": value} for name, value in parameters_of(config).items()})
    assert (told.engine, told.model_dir, told.model_name) == ("tensorrt_llm", model, "model")
    assert (told.tensor_parallel_size, told.pipeline_parallel_size, told.max_num_seqs) == (2, 4, 8)
    assert told.event_buffer_max_size > 0


def test_a_quantized_checkpoint_takes_the_models_place(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The LLM API loads what ModelOpt wrote, under the model's own name."""
    run(model, "--quantization", "fp8", "--dry-run")
    text = capsys.readouterr().out
    config = read_config(text.partition("config.pbtxt\n")[2].partition("# Start")[0])
    told = parameters_of(config)
    assert (told["model_dir"], told["model_name"]) == (str(model.parent / "out/checkpoint"), "model")


def test_a_failing_command_ends_the_build(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is rendered that has no engine."""
    assert run(model, "--kind", "stock", "--examples", "/nowhere") == 1
    assert capsys.readouterr().err.startswith("COMMAND_FAILED: python3 ended with ")
    assert not (model.parent / "out/model_repository").exists()


def test_a_tool_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With where it is."""
    plan = Plan((("no-such-tool",),), STOCK, {}, tmp_path / "repository", ())
    with pytest.raises(BuildFailed, match="no-such-tool is not here: run this in NVIDIA's container") as failed:
        carry_out(plan)
    assert failed.value.reason == "TOOL_MISSING"


def test_an_existing_repository_is_left_alone(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It may be served; this is found before hours of building."""
    assert run(model) == 0
    capsys.readouterr()
    assert run(model) == 1
    assert capsys.readouterr().err.startswith("OUTPUT_EXISTS: ")


@pytest.mark.parametrize("config", [None, "[]", "{}", '{"model_type": "llama", "max_position_embeddings": "long"}'])
def test_a_folder_that_is_no_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], config: str | None) -> None:
    """With the file that is missing or wrong."""
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    assert run(tmp_path, "--dry-run") == 1
    assert f"MODEL_INVALID: {tmp_path / 'config.json'}" in capsys.readouterr().err


def test_a_model_without_a_known_converter_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For the stock backend; the LLM API needs none. Models with parts describe the language model in `text_config`."""
    text = {"model_type": "gemma3_text", "max_position_embeddings": 8192}
    folder = write_model(tmp_path / "model", model_type="gemma3", text_config=text)
    assert run(folder, "--kind", "stock", "--dry-run") == 1
    assert "no converter is known for 'gemma3_text'" in capsys.readouterr().err
    assert run(folder, "--kind", "llm-api", "--dry-run") == 0

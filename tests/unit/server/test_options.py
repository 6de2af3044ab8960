"""The parameters of config.pbtxt, and the engine they name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from server.build import TEMPLATE
from server.engine.base import Description
from server.engine.scripted import ScriptedEngine
from server.options import TOKENS_PER_BLOCK, EngineOptions, OptionInvalid, build_engine, describe_folder, read_options


def parameters(**values: str) -> dict[str, dict[str, str]]:
    """As Triton hands them over."""
    return {key: {"string_value": value} for key, value in {"model_dir": "/models/small", **values}.items()}


def test_a_folder_is_enough() -> None:
    """It also names the model; everything else has a default."""
    assert read_options(parameters()) == EngineOptions(Path("/models/small"), "small")


def test_what_is_given_counts() -> None:
    """Names stay text, sizes become numbers."""
    options = read_options(parameters(model_name="mine", engine="scripted", profile="deterministic", kv_blocks="64", step_us="500"))
    expected = EngineOptions(Path("/models/small"), "mine", "scripted", "deterministic", kv_blocks=64, step_us=500)
    assert options == expected


def test_a_placeholder_left_as_it_is_counts_as_unset() -> None:
    """So that one config.pbtxt serves all engines, as TensorRT-LLM has it."""
    assert read_options(parameters(kv_blocks="${kv_blocks}", model_name="${model_name}")) == read_options(parameters())


def test_every_parameter_of_the_template_is_an_option() -> None:
    """The template of config.pbtxt names nothing that this engine does not know, and leaves nothing out."""
    template = (TEMPLATE / "tensorrt_llm/config.pbtxt").read_text()
    lines = [line for line in template.splitlines() if line.startswith("parameters")]
    assert {line.split('"')[1] for line in lines} == set(EngineOptions.__dataclass_fields__)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kv_block": "64"}, "unknown parameter kv_block"),
        ({"kv_blocks": "0"}, "kv_blocks: must be a whole number of at least 1"),
        ({"max_num_seqs": "-1"}, "max_num_seqs: must be a whole number of at least 1"),
        ({"profile": "slow"}, "profile: must be one of fast, deterministic"),
        ({"step_us": "1.5"}, "step_us: must be a whole number of at least 1"),
        ({"max_num_batched_tokens": ""}, "max_num_batched_tokens: must be a whole number of at least 1"),
        ({"model_dir": "${model_dir}"}, "model_dir: not set"),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, str], message: str) -> None:
    """Triton shows the message when it cannot load the model."""
    with pytest.raises(OptionInvalid, match=f"^{message}$"):
        read_options(parameters(**given))


@pytest.mark.parametrize(("told", "end_ids"), [([2, 0], (2, 0)), (2, (2,))])
def test_an_engine_is_described_by_its_folder(tmp_path: Path, told: object, end_ids: tuple[int, ...]) -> None:
    """Context, vocabulary and end tokens come from the model's own files, sizes from the options."""
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 2048, "vocab_size": 266}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": told}))
    options = EngineOptions(tmp_path, "small", "scripted", "fast", kv_blocks=64, max_num_seqs=8)
    assert describe_folder(options) == Description("small", "scripted", "fast", 2048, 266, end_ids, 8, 64, TOKENS_PER_BLOCK)


def test_the_scripted_engine_can_be_named(chatml: Path) -> None:
    """It serves a folder like any other: for load tests of everything around the engine."""
    engine = build_engine(EngineOptions(chatml, "small", "scripted", step_us=1))
    assert isinstance(engine, ScriptedEngine)
    assert engine.load().step_us == 1


def test_an_unknown_engine_is_refused() -> None:
    """By the names there are."""
    with pytest.raises(OptionInvalid, match="engine: must be "):
        build_engine(EngineOptions(Path("/models/small"), "small", "other"))

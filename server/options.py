"""The engine's options, read from the parameters of config.pbtxt. A value left as `${name}` counts as unset, as TensorRT-LLM has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server.engine.base import Description, Engine
from server.settings import Reader, Value, number, one_of, switch, whole

TOKENS_PER_BLOCK = 32
PROFILES = ("fast", "deterministic")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Everything config.pbtxt may say; sizes in KV blocks, sequences and tokens."""

    model_dir: Path
    model_name: str
    engine: str = "openvino"
    profile: str = "fast"
    kv_blocks: int = 2048
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 128
    enable_kv_cache_reuse: bool = True
    otlp_url: str = ""
    lane_credential: str = ""
    """A file of the secrets by which routers are known. Empty: everybody who reaches the port is served."""
    step_us: int = 10_000
    """Length of a step of the scripted engine."""

    # Of the tensorrt_llm engine, with TensorRT-LLM's names and, where it has one, its default.
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    max_seq_len: int | None = None
    max_tokens_in_paged_kv_cache: int | None = None
    kv_cache_free_gpu_mem_fraction: float = 0.9
    kv_cache_host_memory_bytes: int | None = None
    kv_cache_dtype: str = "auto"
    event_buffer_max_size: int = 0
    """KV cache events kept until they are taken; none are made while it is unset."""
    batch_scheduler_policy: str = "guaranteed_no_evict"
    enable_chunked_context: bool = True
    guided_decoding_backend: str = "xgrammar"
    """xgrammar, llguidance, or none."""
    lora_dir: str = ""
    """A folder with a folder for each LoRA adapter, by which requests name it."""
    max_lora_rank: int = 64
    otlp_traces_endpoint: str = ""
    """Where the engine sends spans of its own; OTLP over gRPC unless OTEL_EXPORTER_OTLP_TRACES_PROTOCOL says otherwise."""


class OptionInvalid(ValueError):
    """A parameter of config.pbtxt that cannot be used; the message names it."""


def read_options(parameters: Mapping[str, Mapping[str, str]]) -> EngineOptions:
    """Options from `model_config["parameters"]`. Raises OptionInvalid."""
    given = {key: entry["string_value"] for key, entry in parameters.items()}
    values = {key: value for key, value in given.items() if not value.startswith("${")}
    unknown = sorted(values.keys() - EngineOptions.__dataclass_fields__.keys())
    if unknown:
        raise OptionInvalid(f"unknown parameter {unknown[0]}")
    if "model_dir" not in values:
        raise OptionInvalid("model_dir: not set")
    folder = Path(values["model_dir"])
    typed = {key: _read_value(key, text) for key, text in values.items()}
    options: dict[str, Any] = {"model_name": folder.name, **_DEFAULTS.get(values.get("engine", ""), {}), **typed, "model_dir": folder}
    return EngineOptions(**options)


# A step of a GPU takes far more than one of a CPU for about the same time.
_DEFAULTS = {"tensorrt_llm": {"max_num_seqs": 256, "max_num_batched_tokens": 8192}}


_READERS: Mapping[str, Reader] = {"int": whole(1), "int | None": whole(1), "float": number(0.001, 1), "bool": switch}
"""By an option's annotation; of others the text is the value."""

_PROFILE = one_of(*PROFILES)


def _read_value(key: str, text: str) -> Value:
    read = _PROFILE if key == "profile" else _READERS.get(str(EngineOptions.__dataclass_fields__[key].type), str)
    try:
        return read(text)
    except ValueError as error:
        raise OptionInvalid(f"{key}: {error}") from None


def build_engine(options: EngineOptions) -> Engine:
    """The engine that `options.engine` names. Its library is imported only here: a GPU machine has no OpenVINO, a laptop no CUDA."""
    if options.engine == "openvino":
        from server.engine.openvino import OpenVinoEngine

        return OpenVinoEngine(options)
    if options.engine == "scripted":
        from server.engine.scripted import ScriptedEngine, count_up

        return ScriptedEngine(describe_folder(options), count_up, options.step_us / 1e6)
    if options.engine == "tensorrt_llm":
        from server.engine.tensorrt_llm import TensorRtLlmEngine, import_library

        return TensorRtLlmEngine(options, import_library())
    raise OptionInvalid("engine: must be openvino, tensorrt_llm or scripted")


def describe_folder(options: EngineOptions) -> Description:
    """The engine that serves a prepared folder, by its `config.json` and `generation_config.json` (Hugging Face layout)."""
    config = json.loads((options.model_dir / "config.json").read_text())
    end_ids = json.loads((options.model_dir / "generation_config.json").read_text())["eos_token_id"]
    return Description(
        model=options.model_name,
        engine=options.engine,
        profile=options.profile,
        context_tokens=config["max_position_embeddings"],
        vocabulary=config["vocab_size"],
        end_ids=tuple(end_ids) if isinstance(end_ids, list) else (end_ids,),
        max_sequences=options.max_num_seqs,
        total_blocks=options.kv_blocks,
        tokens_per_block=TOKENS_PER_BLOCK,
    )

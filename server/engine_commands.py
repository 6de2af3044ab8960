"""The commands of TensorRT-LLM 1.2.1 that make an engine: convert or quantize a checkpoint, then build.

Tensor and pipeline parallelism are fixed when the checkpoint is made: it and the engine have one file for each GPU. The scripts lie in the
examples of NVIDIA's container.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from server.settings import Setting, SettingInvalid, Value, matching, one_of, to_text, whole

Command = tuple[str, ...]

DTYPES = ("auto", "float16", "bfloat16", "float32")
QUANTIZATIONS = ("none", "fp8", "nvfp4", "int8_sq", "int8_wo", "int4_wo", "int4_awq", "w4a8_awq")

_ENABLED = one_of("enable", "disable")
_PLUGIN = one_of("auto", "float16", "bfloat16", "float32", "disable")

BUILD_SETTINGS: Mapping[str, Setting] = {
    # Sizes: sequences, and tokens.
    "max_batch_size": Setting(whole(1), 256),
    "max_num_tokens": Setting(whole(1), 8192),
    "max_beam_width": Setting(whole(1), 1),
    "max_input_len": Setting(whole(1)),
    "max_seq_len": Setting(whole(2)),
    # Attention and KV cache.
    "kv_cache_type": Setting(one_of("paged", "continuous", "disabled"), "paged"),
    "tokens_per_block": Setting(one_of("16", "32", "64", "128"), "32"),
    "remove_input_padding": Setting(_ENABLED, "enable"),
    "context_fmha": Setting(_ENABLED, "enable"),
    "use_paged_context_fmha": Setting(_ENABLED, "enable"),
    "use_fp8_context_fmha": Setting(_ENABLED),
    # Kernels.
    "gpt_attention_plugin": Setting(_PLUGIN, "auto"),
    "gemm_plugin": Setting(_PLUGIN),
    "multiple_profiles": Setting(_ENABLED),
    "reduce_fusion": Setting(_ENABLED),
    "user_buffer": Setting(_ENABLED),
    # Logits.
    "gather_context_logits": Setting(_ENABLED, "disable"),
    "gather_generation_logits": Setting(_ENABLED, "disable"),
    "logits_dtype": Setting(one_of("float16", "float32"), "float32"),
    # Adapters.
    "lora_plugin": Setting(_PLUGIN),
    "lora_target_modules": Setting(matching(r"\w+(,\w+)*", "attn_q,attn_k")),
    "max_lora_rank": Setting(whole(1)),
    # Speculative decoding.
    "speculative_decoding_mode": Setting(one_of("draft_tokens_external", "lookahead_decoding", "medusa", "explicit_draft_tokens", "eagle")),
    "max_draft_len": Setting(whole(1)),
    "workers": Setting(whole(1)),
}

QUANTIZE_SETTINGS: Mapping[str, Setting] = {
    "kv_cache_dtype": Setting(one_of("fp8", "int8")),
    "calib_size": Setting(whole(1)),
}

_FAMILIES = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "qwen",
    "qwen2_moe": "qwen",
    "qwen3": "qwen",
    "qwen3_moe": "qwen",
    "phi": "phi",
    "phi3": "phi",
    "gpt2": "gpt",
    "gpt_bigcode": "gpt",
    "starcoder2": "gpt",
}
"""Folder of convert_checkpoint.py by a model's `model_type`; those whose script takes the usual arguments."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint is made of and for: a folder in Hugging Face layout and what it says, GPUs, number format; `context` in tokens."""

    model: Path
    model_type: str
    context: int
    tp: int
    pp: int
    dtype: str
    quantization: str
    examples: Path

    @property
    def ranks(self) -> int:
        """GPUs that one instance of the engine runs on."""
        return self.tp * self.pp


def convert(wanted: Checkpoint, target: Path, values: Mapping[str, Value]) -> Command:
    """Makes a TensorRT-LLM checkpoint. Raises SettingInvalid for a model whose script is not known."""
    if wanted.quantization != "none":
        return quantize(wanted, target, values, "tensorrt_llm")
    family = _FAMILIES.get(wanted.model_type)
    if family is None:
        raise SettingInvalid(f"model: no converter is known for {wanted.model_type!r}, only for {', '.join(_FAMILIES)}; use --kind llm-api")
    if family == "phi" and wanted.pp > 1:
        raise SettingInvalid("pp: must be 1, the converter of phi knows no pipeline parallelism")
    script = wanted.examples / "models/core" / family / "convert_checkpoint.py"
    return ("python3", str(script), *_common_arguments(wanted, target))


def quantize(wanted: Checkpoint, target: Path, values: Mapping[str, Value], form: str) -> Command:
    """Makes a checkpoint quantized by ModelOpt; `form` is `tensorrt_llm`, for trtllm-build, or `hf`, for the LLM API."""
    script = wanted.examples / "quantization/quantize.py"
    given = _arguments({name: values[name] for name in QUANTIZE_SETTINGS if name in values})
    form_arguments = (f"--qformat={wanted.quantization}", f"--export_format={form}")
    return ("python3", str(script), *_common_arguments(wanted, target), *form_arguments, *given)


def build(checkpoint: Path, target: Path, values: Mapping[str, Value]) -> Command:
    """Builds the engine, one file for each GPU."""
    given = {name: values[name] for name in BUILD_SETTINGS if name in values}
    gathers = [f"--{name}" for name in ("gather_context_logits", "gather_generation_logits") if given.pop(name) == "enable"]
    modules = str(given.pop("lora_target_modules", "")).split(",")
    targets = ["--lora_target_modules", *modules] if modules != [""] else []
    return ("trtllm-build", f"--checkpoint_dir={checkpoint}", f"--output_dir={target}", *_arguments(given), *gathers, *targets)


def _common_arguments(wanted: Checkpoint, target: Path) -> Command:
    sizes = _arguments({"tp_size": wanted.tp, "pp_size": wanted.pp, "dtype": wanted.dtype})
    return (f"--model_dir={wanted.model}", f"--output_dir={target}", *sizes)


def _arguments(values: Mapping[str, Value]) -> Command:
    return tuple(f"--{name}={to_text(value)}" for name, value in values.items())

"""What TensorRT-LLM is given: the arguments of its `LLM` and, for each request, those of `generate_async`. All names are the library's.

`LLM` and its configurations reject unknown names. They are those of 1.2.1 to 1.4; what only some versions have is passed where it is known.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server.engine.base import Description, Guide, GuideKind, Request, RequestRefused, Sampling
from server.options import TOKENS_PER_BLOCK, EngineOptions, OptionInvalid


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """What a model folder says: a Hugging Face or ModelOpt checkpoint, or engines that `trtllm-build` made of one. Sizes in tokens."""

    is_engine: bool
    context_tokens: int
    vocabulary: int
    end_ids: tuple[int, ...]


def read_folder(options: EngineOptions) -> ModelFolder:
    """Reads the folder's configuration. Raises OptionInvalid when nothing bounds the context. `end_ids` may be empty."""
    config = _read_json(options.model_dir / "config.json")
    model = config.get("pretrained_config") or config.get("text_config") or config
    limits = (model.get("max_position_embeddings"), config.get("build_config", {}).get("max_seq_len"), options.max_seq_len)
    known = [limit for limit in limits if limit]
    if not known:
        raise OptionInvalid("max_seq_len: must be set, as this model does not state how long its context is")
    return ModelFolder("build_config" in config, min(known), model["vocab_size"], _read_end_ids(options.model_dir, model))


def _read_end_ids(folder: Path, model: Mapping[str, Any]) -> tuple[int, ...]:
    ids = _read_json(folder / "generation_config.json").get("eos_token_id", model.get("eos_token_id"))
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list) else (ids,)


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def describe_model(options: EngineOptions, folder: ModelFolder, tokenizer: Any) -> Description:
    """The engine before its first request. The size of its KV cache is not known then, and set to one full context."""
    end_ids = folder.end_ids or tuple(filter(None, [getattr(tokenizer, "eos_token_id", None)]))
    if not end_ids:
        raise OptionInvalid("model_dir: neither its configuration nor its tokenizer has an end token")
    return Description(
        model=options.model_name,
        engine=options.engine,
        profile=options.profile,
        context_tokens=folder.context_tokens,
        vocabulary=folder.vocabulary,
        end_ids=end_ids,
        max_sequences=options.max_num_seqs,
        total_blocks=-(-folder.context_tokens // TOKENS_PER_BLOCK),
        tokens_per_block=TOKENS_PER_BLOCK,
        isolates_salts=True,
    )


def load_llm(library: Any, options: EngineOptions, folder: ModelFolder) -> Any:
    """The library's LLM on the model folder: PyTorch for a checkpoint, TensorRT for engines."""
    if options.profile != "fast":
        raise OptionInvalid("profile: must be fast; TensorRT-LLM's answers depend on what else is in the batch")
    arguments = llm_arguments(library, options)
    if not folder.is_engine:
        # `max_input_len` is 1024 by default, and without statistics there is no load.
        lengths = {"max_seq_len": folder.context_tokens, "max_input_len": folder.context_tokens - 1}
        return library.LLM(**arguments, **lengths, enable_iter_perf_stats=True)
    if not hasattr(library, "_tensorrt_engine"):
        raise OptionInvalid("model_dir: TensorRT-LLM runs no engines since 1.3; use the checkpoint they were built from")
    return library._tensorrt_engine.LLM(**arguments)


def llm_arguments(library: Any, options: EngineOptions) -> dict[str, Any]:
    """Keyword arguments of `LLM` that do not depend on what is in the folder."""
    guided = options.guided_decoding_backend
    arguments = {
        "model": str(options.model_dir),
        "tensor_parallel_size": options.tensor_parallel_size,
        "pipeline_parallel_size": options.pipeline_parallel_size,
        "max_batch_size": options.max_num_seqs,
        "max_num_tokens": options.max_num_batched_tokens,
        "enable_chunked_prefill": options.enable_chunked_context,
        "kv_cache_config": library.llmapi.KvCacheConfig(**_kv_cache(options)),
        "scheduler_config": library.llmapi.SchedulerConfig(capacity_scheduler_policy=_scheduler_policy(library, options)),
        "guided_decoding_backend": None if guided == "none" else guided,
        "return_perf_metrics": True,
        "otlp_traces_endpoint": options.otlp_traces_endpoint or None,
        "lora_config": _lora_config(library, options),
    }
    return {name: value for name, value in arguments.items() if value is not None}


def _kv_cache(options: EngineOptions) -> dict[str, Any]:
    values = {
        "enable_block_reuse": options.enable_kv_cache_reuse,
        "free_gpu_memory_fraction": options.kv_cache_free_gpu_mem_fraction,
        "max_tokens": options.max_tokens_in_paged_kv_cache,
        "host_cache_size": options.kv_cache_host_memory_bytes,
        "dtype": options.kv_cache_dtype,
        "event_buffer_max_size": options.event_buffer_max_size,
    }
    return {name: value for name, value in values.items() if value is not None}


def _scheduler_policy(library: Any, options: EngineOptions) -> Any:
    policies = library.llmapi.CapacitySchedulerPolicy.__members__
    if options.batch_scheduler_policy.upper() not in policies:
        raise OptionInvalid(f"batch_scheduler_policy: must be one of {', '.join(policies).lower()}")
    return policies[options.batch_scheduler_policy.upper()]


def _lora_config(library: Any, options: EngineOptions) -> Any:
    """One adapter's folder tells which modules adapters change; the library accepts exactly one, and loads the rest when asked for."""
    adapters = _adapter_folders(options)
    if not adapters:
        return None
    return library.lora_helper.LoraConfig(lora_dir=[str(adapters[0])], max_lora_rank=options.max_lora_rank)


def _adapter_folders(options: EngineOptions) -> list[Path]:
    return sorted(path for path in Path(options.lora_dir).iterdir() if path.is_dir()) if options.lora_dir else []


class RequestWriter:
    """Writes requests as the keyword arguments of `generate_async`."""

    def __init__(self, library: Any, options: EngineOptions, end_ids: tuple[int, ...]) -> None:
        self._library = library
        self._end_ids = end_ids
        self._guided = options.guided_decoding_backend != "none"
        self._traced = "trace_headers" in inspect.signature(library.LLM.generate_async).parameters
        folders = enumerate(_adapter_folders(options), start=1)
        self._adapters = {path.name: library.llmapi.LoRARequest(path.name, number, str(path)) for number, path in folders}

    def write(self, request: Request) -> dict[str, Any]:
        """The arguments. Raises RequestRefused, and what the library's own classes raise."""
        arguments = {
            "inputs": list(request.prompt),
            "sampling_params": self._library.SamplingParams(**self._sampling(request)),
            "lora_request": self._find_adapter(request.lora),
            "cache_salt": request.cache_salt or None,
            "trace_headers": (dict(request.trace_headers) or None) if self._traced else None,
            "streaming": True,
        }
        return {name: value for name, value in arguments.items() if value is not None}

    def _sampling(self, request: Request) -> dict[str, Any]:
        end_id, *more = request.end_ids or self._end_ids
        return {
            "end_id": end_id,
            "pad_id": end_id,
            "stop_token_ids": [*more, *request.stop_ids] or None,
            "include_stop_str_in_output": True,
            "max_tokens": request.max_new_tokens,
            "detokenize": False,
            # 0 would do in later versions; 1.2.1 takes it for "none".
            "logprobs": 1 if request.log_probs else None,
            "guided_decoding": self._write_guide(request.guide),
            **write_sampling(request.sampling),
        }

    def _find_adapter(self, name: str) -> Any:
        if name and name not in self._adapters:
            raise RequestRefused(f"lora: no such adapter; there are {', '.join(self._adapters) or 'none'}")
        return self._adapters.get(name)

    def _write_guide(self, guide: Guide | None) -> Any:
        if guide is None:
            return None
        if not self._guided:
            raise RequestRefused("guided_decoding_guide_type: this engine runs with guided_decoding_backend=none")
        if guide.kind is GuideKind.JSON_SCHEMA:
            _check_schema(guide.text)
        name = _GUIDES[guide.kind]
        return self._library.llmapi.GuidedDecodingParams(**{name: True if guide.kind is GuideKind.JSON else guide.text})


_GUIDES = {
    GuideKind.JSON: "json_object",
    GuideKind.JSON_SCHEMA: "json",
    GuideKind.REGEX: "regex",
    GuideKind.EBNF_GRAMMAR: "grammar",
}


def _check_schema(text: str) -> None:
    try:
        schema = json.loads(text)
    except ValueError:
        schema = None
    if not isinstance(schema, dict):
        raise RequestRefused("guided_decoding_guide: must be a JSON schema")


def write_sampling(sampling: Sampling) -> dict[str, Any]:
    """Fields of SamplingParams. What a missing one follows from differs between versions, so the main three are all given."""
    values = {name: getattr(sampling, name) for name in _PENALTIES}
    if sampling.is_greedy:
        return {**values, "top_k": 1}
    return {
        **values,
        "temperature": 1.0 if sampling.temperature is None else sampling.temperature,
        "top_k": sampling.top_k or 0,
        "top_p": 1.0 if sampling.top_p is None else sampling.top_p,
        "min_p": sampling.min_p,
        # The library's default seed is fixed; two callers would get the same "random" answer.
        "seed": time.monotonic_ns() & 0x7FFFFFFF if sampling.seed is None else sampling.seed,
    }


_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens")

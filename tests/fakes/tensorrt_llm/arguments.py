"""The classes that hold arguments. Names, types and defaults are the library's (1.3.0rc7's reference); unknown names are refused."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass

from .lora_helper import LoraConfig

STRICT = ConfigDict(extra="forbid", strict=True)


class Strict(BaseModel):
    """A model that takes no unknown names and converts no types."""

    model_config = STRICT


class CapacitySchedulerPolicy(StrEnum):
    """Whether a running request may be paused for want of KV blocks."""

    MAX_UTILIZATION = "MAX_UTILIZATION"
    GUARANTEED_NO_EVICT = "GUARANTEED_NO_EVICT"
    STATIC_BATCH = "STATIC_BATCH"


class SchedulerConfig(Strict):
    """Which requests run in an iteration."""

    capacity_scheduler_policy: CapacitySchedulerPolicy = CapacitySchedulerPolicy.GUARANTEED_NO_EVICT
    context_chunking_policy: None = None
    dynamic_batch_config: None = None


class KvCacheConfig(Strict):
    """The paged KV cache."""

    enable_block_reuse: bool = True
    max_tokens: int | None = None
    max_attention_window: list[int] | None = None
    sink_token_length: int | None = None
    free_gpu_memory_fraction: Annotated[float | None, Field(ge=0, le=1)] = 0.9
    host_cache_size: int | None = None
    onboard_blocks: bool = True
    secondary_offload_min_priority: int | None = None
    event_buffer_max_size: int = 0
    attention_dp_events_gather_period_ms: int = 5
    enable_partial_reuse: bool = True
    copy_on_partial_reuse: bool = True
    dtype: str = "auto"
    tokens_per_block: int = 32


class BaseLlmArgs(Strict):
    """What `LLM` takes, whatever runs the model."""

    model: str | Path
    tokenizer: str | Path | None = None
    skip_tokenizer_init: bool = False
    trust_remote_code: bool = False
    dtype: str = "auto"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    context_parallel_size: int = 1
    gpus_per_node: int | None = None
    enable_lora: bool = False
    lora_config: LoraConfig | None = None
    kv_cache_config: KvCacheConfig = Field(default_factory=KvCacheConfig)
    scheduler_config: SchedulerConfig = Field(default_factory=SchedulerConfig)
    enable_chunked_prefill: bool = False
    guided_decoding_backend: Literal["xgrammar", "llguidance"] | None = None
    max_batch_size: int | None = 2048
    max_input_len: int | None = 1024
    max_seq_len: int | None = None
    max_num_tokens: int | None = 8192
    return_perf_metrics: bool = False


class TrtLlmArgs(BaseLlmArgs):
    """Engines of `trtllm-build`, up to 1.2."""


class TorchLlmArgs12(BaseLlmArgs):
    """The PyTorch runtime in 1.2."""

    enable_iter_perf_stats: bool = False
    enable_iter_req_stats: bool = False
    stream_interval: int = 1
    disable_overlap_scheduler: bool = False


class TorchLlmArgs13(TorchLlmArgs12):
    """The PyTorch runtime in 1.3."""

    otlp_traces_endpoint: str | None = None
    max_stats_len: int = 1000


@dataclass(config=STRICT)
class GuidedDecodingParams:
    """A guide; exactly one kind."""

    json: str | dict[str, object] | None = None
    regex: str | None = None
    grammar: str | None = None
    json_object: bool = False
    structural_tag: str | None = None

    def __post_init__(self) -> None:
        given = [value for value in (self.json, self.regex, self.grammar, self.structural_tag) if value is not None]
        if len(given) + self.json_object > 1:
            raise ValueError("Only one guide can be used for a request.")


@dataclass(config=STRICT, kw_only=True)
class SamplingParams:
    """How a request is sampled, and what it is answered with."""

    end_id: int | None = None
    pad_id: int | None = None
    max_tokens: int = 32
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    n: int = 1
    top_k: Annotated[int | None, Field(ge=0)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    seed: Annotated[int | None, Field(ge=0, lt=2**64)] = None
    temperature: Annotated[float | None, Field(ge=0)] = None
    min_tokens: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    min_p: float | None = None
    logprobs: int | None = None
    exclude_input_from_output: bool = True
    return_perf_metrics: bool = False
    guided_decoding: GuidedDecodingParams | None = None
    ignore_eos: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True


@dataclass(config=STRICT)
class LoRARequest:
    """An adapter for a request; loaded when it is first asked for."""

    lora_name: str
    lora_int_id: int
    lora_path: str = ""
    lora_ckpt_source: str = "hf"

    def __post_init__(self) -> None:
        if not Path(self.lora_path).exists():
            raise ValueError(f"lora_path ({self.lora_path}) does not exist.")

"""As `tensorrt_llm.llmapi`: the LLM of 1.3, that of 1.2, and 1.2's LLM for engines of `trtllm-build`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, validate_call

from .arguments import (
    BaseLlmArgs,
    CapacitySchedulerPolicy,
    GuidedDecodingParams,
    KvCacheConfig,
    LoRARequest,
    SamplingParams,
    SchedulerConfig,
    TorchLlmArgs12,
    TorchLlmArgs13,
    TrtLlmArgs,
)
from .executor import Executor
from .results import IterationResult, RequestError, RequestOutput
from .script import Script, count_up

__all__ = [
    "LLM",
    "CapacitySchedulerPolicy",
    "GuidedDecodingParams",
    "KvCacheConfig",
    "LoRARequest",
    "RequestError",
    "RequestOutput",
    "SamplingParams",
    "SchedulerConfig",
]

_checked = validate_call(config=ConfigDict(strict=True, arbitrary_types_allowed=True))


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request came with, as the library got it."""

    inputs: list[int]
    sampling_params: SamplingParams
    lora_request: LoRARequest | None
    cache_salt: str | None
    trace_headers: Mapping[str, str] | None


class Tokenizer:
    """Loaded from the model folder, and used when no end token is given."""

    eos_token_id = 2


class BaseLLM:
    """What every LLM has. `made` keeps the instances and `asked` their requests, for the tests."""

    arguments: type[BaseLlmArgs]
    script: Script = staticmethod(count_up)
    made: list[BaseLLM] = []  # noqa: RUF012 - a subclass made by build_library has its own
    keeps_end = True

    def __init__(self, **arguments: Any) -> None:
        self.args = self.arguments(**arguments)
        self.tokenizer = Tokenizer()
        self.asked: list[Asked] = []
        self.executor = Executor(self.args, self.script, self.keeps_end)
        self._iterations: dict[str, IterationResult] = {}
        self.made.append(self)

    def get_stats_async(self, timeout: float | None = 2) -> IterationResult:
        """Iteration statistics; reading takes them away."""
        return self._read("stats", self.executor.statistics, timeout)

    def get_kv_cache_events_async(self, timeout: float | None = 2) -> IterationResult:
        """KV cache events; reading takes them away."""
        assert self.args.kv_cache_config.event_buffer_max_size > 0
        return self._read("events", self.executor.cache.events, timeout)

    def shutdown(self) -> None:
        """Ends the executor."""
        self.executor.shutdown()

    def _read(self, name: str, source: Any, timeout: float | None) -> IterationResult:
        assert self._iterations, "there is nothing before the first request"
        return self._iterations[name].fill(lambda wait: self.executor.fetch(source, wait), timeout or 0.0)

    def _generate(self, asked: Asked, streaming: bool) -> RequestOutput:
        if self.executor.is_shutdown:
            raise RuntimeError("LLM is shutting down")
        assert streaming, "the answer would come whole"
        sampling = asked.sampling_params
        if len(asked.inputs) > (self.args.max_num_tokens or 0) and not self.args.enable_chunked_prefill:
            raise ValueError(f"The sum of prompt length ({len(asked.inputs)}), query length (0) should not exceed max_num_tokens")
        assert sampling.guided_decoding is None or self.args.guided_decoding_backend, "guided decoding is not set up"
        assert asked.lora_request is None or self.args.lora_config, "LoRA is not set up"
        self._iterations = self._iterations or {"stats": IterationResult(), "events": IterationResult()}
        self.asked.append(asked)
        adapter = asked.lora_request.lora_int_id if asked.lora_request else 0
        return self.executor.submit(asked.inputs, sampling, (asked.cache_salt, adapter))


class LLM12(BaseLLM):
    """PyTorch runtime, 1.2.1: trace headers are unknown."""

    arguments: type[BaseLlmArgs] = TorchLlmArgs12

    @_checked
    def generate_async(
        self,
        inputs: list[int],
        sampling_params: SamplingParams,
        *,
        lora_request: LoRARequest | None = None,
        prompt_adapter_request: None = None,
        streaming: bool = False,
        kv_cache_retention_config: None = None,
        disaggregated_params: None = None,
        scheduling_params: None = None,
        cache_salt: str | None = None,
    ) -> Any:
        """Starts a request."""
        return self._generate(Asked(inputs, sampling_params, lora_request, cache_salt, None), streaming)


class TensorRtLLM(LLM12):
    """Engines of `trtllm-build`, 1.2.1: the end token is not in the output."""

    arguments = TrtLlmArgs
    keeps_end = False


class LLM(BaseLLM):
    """PyTorch runtime, 1.3."""

    arguments = TorchLlmArgs13

    @_checked
    def generate_async(
        self,
        inputs: list[int],
        sampling_params: SamplingParams,
        *,
        lora_request: LoRARequest | None = None,
        prompt_adapter_request: None = None,
        streaming: bool = False,
        kv_cache_retention_config: None = None,
        disaggregated_params: None = None,
        trace_headers: Mapping[str, str] | None = None,
        scheduling_params: None = None,
        cache_salt: str | None = None,
    ) -> Any:
        """Starts a request."""
        return self._generate(Asked(inputs, sampling_params, lora_request, cache_salt, trace_headers), streaming)

"""What TensorRT-LLM's Triton models take and give: `tensorrt_llm` token ids, `ensemble` and `tensorrt_llm_bls` text.

Names, types and shapes are those of NVIDIA's config.pbtxt, so that a caller need not know that a router answers. Left out, and refused by
name, are tensors that this router has no use for: adapters, draft tokens, encoders, embeddings. Some of those that stay may only have the
value that changes nothing, as `beam_width` 1. Names that TensorRT-LLM had up to 0.19 are served beside the new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig
from tritonclient.grpc.service_pb2 import ModelMetadataResponse

VERSION = "1"
PLATFORM = "tidegate"


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output. In `dims` the batch dimension is left out and -1 is any size; `only` is the one value that is served."""

    name: str
    datatype: str
    dims: tuple[int, ...] = (1,)
    required: bool = False
    only: int | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """One of the two forms; the names are those of the tensors that differ between them."""

    prompt: str
    most: str
    streaming: str
    stops: str
    bans: str
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]

    def name_of(self, field: str) -> str:
        """The input that a field of a turn is asked by."""
        name = field.partition("[")[0].removeprefix("sampling.")
        own = {"prompt": self.prompt, "max_output_tokens": self.most, "stop": self.stops, "stop_ids": self.stops} | _OTHERS
        return own.get(name) or (f"runtime_{name}" if f"runtime_{name}" in self.inputs else name)


_OTHERS = {"min_output_tokens": "min_tokens", "response_format": "guided_decoding_guide"}


def describe(name: str, contract: Contract) -> ModelMetadataResponse:
    """A model's metadata; shapes have the batch dimension."""
    told = ModelMetadataResponse(name=name, versions=[VERSION], platform=PLATFORM)
    for target, tensors in ((told.inputs, contract.inputs), (told.outputs, contract.outputs)):
        for tensor in tensors.values():
            target.add(name=tensor.name, datatype=tensor.datatype, shape=(-1, *tensor.dims))
    return told


def configure(name: str, contract: Contract) -> ModelConfig:
    """A model's configuration: one request a message, many responses a request."""
    config = ModelConfig(name=name, platform=PLATFORM, backend=PLATFORM, max_batch_size=1)
    config.model_transaction_policy.decoupled = True
    for tensor in contract.inputs.values():
        config.input.add(name=tensor.name, data_type=_type_of(tensor), dims=tensor.dims, optional=not tensor.required)
    for tensor in contract.outputs.values():
        config.output.add(name=tensor.name, data_type=_type_of(tensor), dims=tensor.dims)
    return config


def _type_of(tensor: Tensor) -> int:
    number: int = DataType.Value(f"TYPE_{'STRING' if tensor.datatype == 'BYTES' else tensor.datatype}")
    return number


def _by_name(*tensors: Tensor) -> Mapping[str, Tensor]:
    return {tensor.name: tensor for tensor in tensors}


_BOTH = (
    Tensor("end_id", "INT32"),
    Tensor("pad_id", "INT32"),
    Tensor("stop", "BOOL"),
    Tensor("exclude_input_in_output", "BOOL"),
    Tensor("temperature", "FP32"),
    Tensor("min_p", "FP32"),
    Tensor("repetition_penalty", "FP32"),
    Tensor("presence_penalty", "FP32"),
    Tensor("frequency_penalty", "FP32"),
    Tensor("min_tokens", "INT32"),
    Tensor("min_length", "INT32"),
    Tensor("seed", "UINT64"),
    Tensor("random_seed", "UINT64"),
    Tensor("guided_decoding_guide_type", "BYTES"),
    Tensor("guided_decoding_guide", "BYTES"),
    Tensor("return_log_probs", "BOOL"),
    Tensor("return_num_input_tokens", "BOOL", only=False),
    Tensor("return_num_output_tokens", "BOOL", only=False),
    Tensor("return_context_logits", "BOOL", only=False),
    Tensor("return_generation_logits", "BOOL", only=False),
    Tensor("return_perf_metrics", "BOOL", only=False),
    Tensor("beam_width", "INT32", only=1),
    Tensor("num_return_sequences", "INT32", only=1),
)

_LOG_PROBS = (Tensor("cum_log_probs", "FP32", (-1,)), Tensor("output_log_probs", "FP32", (-1, -1)))

TOKENS = Contract(
    prompt="input_ids",
    most="request_output_len",
    streaming="streaming",
    stops="stop_words_list",
    bans="bad_words_list",
    inputs=_by_name(
        Tensor("input_ids", "INT32", (-1,), required=True),
        Tensor("request_output_len", "INT32", required=True),
        Tensor("input_lengths", "INT32"),
        Tensor("streaming", "BOOL"),
        Tensor("stop_words_list", "INT32", (2, -1)),
        Tensor("bad_words_list", "INT32", (2, -1)),
        Tensor("runtime_top_k", "INT32"),
        Tensor("runtime_top_p", "FP32"),
        Tensor("len_penalty", "FP32"),
        *_BOTH,
    ),
    outputs=_by_name(Tensor("output_ids", "INT32", (-1, -1)), Tensor("sequence_length", "INT32", (-1,)), *_LOG_PROBS),
)

TEXT = Contract(
    prompt="text_input",
    most="max_tokens",
    streaming="stream",
    stops="stop_words",
    bans="bad_words",
    inputs=_by_name(
        Tensor("text_input", "BYTES", required=True),
        Tensor("max_tokens", "INT32", required=True),
        Tensor("stream", "BOOL"),
        Tensor("stop_words", "BYTES", (-1,)),
        Tensor("bad_words", "BYTES", (-1,)),
        Tensor("top_k", "INT32"),
        Tensor("top_p", "FP32"),
        Tensor("length_penalty", "FP32"),
        *_BOTH,
    ),
    outputs=_by_name(Tensor("text_output", "BYTES", (-1,)), *_LOG_PROBS),
)

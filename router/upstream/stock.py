"""The wire contract of the stock worker: the C++ model `tensorrt_llm` as NVIDIA ships it up to Triton 26.07 (TensorRT-LLM 1.2.1).

It differs from our own model in this. Every tensor has a leading batch dimension of 1. The backend has no tokenizer, so the request says
which tokens end an answer: one as `end_id`, which the engine keeps to itself, others as stop words, which it emits. A stream brings deltas;
the last may be empty. Log probabilities are those of the whole answer so far. Why an answer ended is not told, `request_output_len` is cut
silently to what the engine can hold, and errors are texts. Everything here is pure; direct.py does the talking.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.model_config_pb2 import ModelConfig

from router.errors import TidegateError, engine_failed, engine_refused, option_unsupported, prompt_too_long, worker_full
from router.model import GenerationRequest, Sampling, WorkerDelta, WorkerDescription, WorkerFinish
from router.upstream.contract import MODEL
from router.upstream.tensors import add_tensor, add_text, guide_texts, raw_outputs, read_numbers, sampling_tensors

_INPUTS = {"input_ids", "input_lengths", "request_output_len", "end_id", "pad_id", "stop_words_list", "streaming"}
_QUEUE_FULL = re.compile(r"Maximum queue size of \d+ has been reached|Exceeds maximum queue size")
_PROMPT_TOO_LONG = re.compile(r"Prompt length \((\d+)\) exceeds maximum input length \((\d+)\)")


class ResponseInvalid(ValueError):
    """A response that the stock model does not give."""


def is_stock(config: ModelConfig) -> bool:
    """Whether a model's configuration is that of the stock model, whose executor is C++ or Python, able to stream."""
    decoupled: bool = config.model_transaction_policy.decoupled
    return decoupled and config.max_batch_size > 0 and {it.name for it in config.input} >= _INPUTS


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the router itself knows of a model, for workers that cannot say it; of the ids that end an answer the first is the main one.

    `shared_prefixes`: tenants may share cached prefixes.
    """

    name: str
    end_ids: tuple[int, ...]
    context_tokens: int
    vocabulary: int
    shared_prefixes: bool = False


@dataclass(frozen=True, slots=True)
class StockModel:
    """What requests depend on: of the tokens that end an answer the first is the main one; `guided` is whether it can follow a guide."""

    description: WorkerDescription
    end_ids: tuple[int, ...]
    guided: bool


def read_model(config: ModelConfig, facts: ModelFacts) -> StockModel:
    """What the configuration tells of the worker; the rest as the model's folder has it.

    The backend does not read `max_seq_len`: `tidegate engine build` writes the engine's there, so that it is known where answers are cut.
    """
    context = min(facts.context_tokens, _read_count(config, "max_seq_len") or facts.context_tokens)
    description = WorkerDescription(
        model=facts.name,
        engine="tensorrtllm",
        profile="stock",
        context_tokens=context,
        vocabulary=facts.vocabulary,
        max_sequences=config.max_batch_size,
        pool_tokens=_read_count(config, "max_tokens_in_paged_kv_cache") or context,
        # It takes no salt, and reuses prefixes unless it is told not to.
        isolates_salts=_read_text(config, "enable_kv_cache_reuse").lower() == "false",
    )
    return StockModel(description, facts.end_ids, _read_text(config, "guided_decoding_backend") != "")


def _read_count(config: ModelConfig, name: str) -> int | None:
    text = _read_text(config, name)
    return int(text) if text.isdecimal() else None


def _read_text(config: ModelConfig, name: str) -> str:
    """A parameter; "" when unset, as which TensorRT-LLM counts `${name}` too."""
    text: str = config.parameters[name].string_value if name in config.parameters else ""
    return "" if text.startswith("${") else text


def generate(request_id: str, asked: GenerationRequest, model: StockModel, seed: int) -> triton.ModelInferRequest:
    """One streamed generation; `seed` is for a request without one. The id must be unique in the worker: its cancellation goes by it.

    Raises CallerError OPTION_UNSUPPORTED.
    """
    request = triton.ModelInferRequest(model_name=MODEL, id=request_id)
    main, *others = model.end_ids
    add_tensor(request, "input_ids", "INT32", asked.prompt, (1, -1))
    add_tensor(request, "input_lengths", "INT32", [len(asked.prompt)], (1, 1))
    add_tensor(request, "request_output_len", "INT32", [asked.max_new_tokens], (1, 1))
    add_tensor(request, "end_id", "INT32", [main], (1, 1))
    add_tensor(request, "pad_id", "INT32", [main], (1, 1))
    add_tensor(request, "streaming", "BOOL", [True], (1, 1))
    if others:
        add_tensor(request, "stop_words_list", "INT32", [*others, *range(1, len(others) + 1)], (1, 2, -1))
    for name, datatype, value in sampling_tensors(in_engine_terms(asked.sampling, seed)):
        add_tensor(request, name, datatype, [value], (1, 1))
    _add_options(request, asked, model)
    for output in ("output_ids", "sequence_length", *(["output_log_probs"] if asked.log_probs else [])):
        request.outputs.add(name=output)
    return request


def _add_options(request: triton.ModelInferRequest, asked: GenerationRequest, model: StockModel) -> None:
    if asked.sampling.min_p is not None:
        raise option_unsupported("sampling.min_p", "this model's worker does not serve it")
    if asked.guide is not None and not model.guided:
        raise option_unsupported("response_format", "this model's worker serves neither it nor forced tool calls")
    for name, text in guide_texts(asked.guide):
        add_text(request, name, text, (1, 1))
    if asked.min_new_tokens is not None:
        add_tensor(request, "min_tokens", "INT32", [asked.min_new_tokens], (1, 1))
    if asked.log_probs:
        add_tensor(request, "return_log_probs", "BOOL", [True], (1, 1))


def in_engine_terms(sampling: Sampling, seed: int) -> Sampling:
    """The same choice as the executor must be told it.

    Without top-k and top-p it is greedy, whatever temperature and seed say; and all who give no seed get the same one.
    """
    asked = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed)
    if sampling.temperature == 0 or sampling.top_k == 1 or asked == (None, None, None, None):
        return replace(sampling, temperature=None, top_k=1, top_p=None)
    top_p = 1.0 if not sampling.top_k and sampling.top_p is None else sampling.top_p
    return replace(sampling, top_p=top_p, seed=seed if sampling.seed is None else sampling.seed)


@dataclass(frozen=True, slots=True)
class Response:
    """One response: new tokens of the only beam, their log probabilities if asked for, and whether it is the last."""

    tokens: Sequence[int]
    log_probs: Sequence[float] | None
    final: bool


def read_response(response: triton.ModelInferResponse) -> Response:
    """Raises ResponseInvalid."""
    final = response.parameters["triton_final_response"].bool_param
    if final and not response.outputs:
        return Response([], None, final)
    try:
        raw = raw_outputs(response)
        ids, length = read_numbers(raw["output_ids"], "i"), read_numbers(raw["sequence_length"], "i")[0]
        log_probs = read_numbers(raw["output_log_probs"], "f") if "output_log_probs" in raw else None
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise ResponseInvalid(f"not an answer of the stock model: {type(error).__name__}") from error
    if not 0 <= length <= len(ids) or (log_probs is not None and len(log_probs) < length):
        raise ResponseInvalid("sequence_length, output_ids and output_log_probs differ")
    return Response(ids[:length], log_probs and log_probs[len(log_probs) - length :], final)


class Deltas:
    """Follows one answer of at most `most` tokens: leaves out the end token and what follows it, and derives how the answer ended."""

    def __init__(self, end_ids: Collection[int], most: int) -> None:
        self._end_ids = end_ids
        self._left = most
        self._stopped = False

    def take(self, response: Response) -> WorkerDelta:
        """The tokens that belong to the answer, and its end with the final response: the engine tells nobody why it stopped."""
        tokens = response.tokens
        end = 0 if self._stopped else next((at for at, token in enumerate(tokens) if token in self._end_ids), len(tokens))
        self._stopped = self._stopped or end < len(tokens)
        self._left -= end
        return WorkerDelta(tokens[:end], self._derive_finish(response.final), response.log_probs and response.log_probs[:end])

    def _derive_finish(self, final: bool) -> WorkerFinish:
        if not final:
            return WorkerFinish.RUNNING
        return WorkerFinish.END_ID if self._stopped or self._left > 0 else WorkerFinish.LENGTH


def to_error(text: str, *, has_tokens: bool) -> TidegateError:
    """What an error's text means. The stock model gives no codes."""
    if _QUEUE_FULL.search(text):
        return worker_full()
    if found := _PROMPT_TOO_LONG.search(text):
        return prompt_too_long(int(found[1]), int(found[2]))
    return engine_failed() if has_tokens else engine_refused()

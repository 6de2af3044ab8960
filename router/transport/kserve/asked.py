"""What an inference request asks: a turn of the pipeline, and the form in which its answer is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tritonclient.grpc.service_pb2 import InferParameter, ModelInferRequest

from router.errors import option_unsupported
from router.model import Guide, GuideKind, Priority, Sampling, TurnRequest
from router.transport.kserve.catalogue import Served
from router.transport.kserve.contracts import TOKENS
from router.transport.kserve.tensors import Inputs, invalid, read_inputs, read_outputs

EMPTY_FINAL = "triton_enable_empty_final_response"


@dataclass(frozen=True, slots=True)
class Form:
    """How the answer is told.

    `streaming` is one response for each step, else one in all; `empty_final` lets a stream end with a response that has no outputs. `echo`
    is whether the answer begins with the prompt.
    """

    streaming: bool
    empty_final: bool
    batched: bool
    outputs: frozenset[str]
    echo: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """One request; `stop` asks to end the one of the same id, and then the turn means nothing."""

    id: str
    served: Served
    turn: TurnRequest
    form: Form
    stop: bool


def read_asked(request: ModelInferRequest, served: Served) -> Asked:
    """Raises CallerError."""
    contract = served.contract
    inputs = read_inputs(request, contract)
    turn = _read_turn(request, inputs, served)
    streaming = inputs.flag(contract.streaming)
    form = Form(
        streaming=streaming,
        empty_final=_read_empty_final(request),
        batched=inputs.batched,
        outputs=read_outputs(request, contract),
        # TensorRT-LLM repeats the prompt unless it streams or is told otherwise.
        echo=not (streaming or inputs.flag("exclude_input_in_output")),
    )
    return Asked(request.id, served, turn, form, inputs.flag("stop"))


def _read_turn(request: ModelInferRequest, inputs: Inputs, served: Served) -> TurnRequest:
    in_ids = served.contract is TOKENS
    _refuse_bans(inputs, served)
    _check_end_id(inputs, served)
    return TurnRequest(
        model=served.model,
        messages=(),
        sampling=_read_sampling(inputs),
        max_output_tokens=inputs.one(served.contract.most),
        min_output_tokens=inputs.one("min_tokens", "min_length"),
        stop=() if in_ids else _read_texts(inputs, served.contract.stops),
        guide=_read_guide(inputs),
        logprobs=inputs.flag("return_log_probs"),
        priority=_read_priority(request),
        max_wait_s=_read_timeout(request),
        text=None if in_ids else inputs.one("text_input"),
        input_ids=_read_ids(inputs) if in_ids else None,
        stop_ids=list(_read_words(inputs, served.contract.stops)) if in_ids else (),
    )


def _read_ids(inputs: Inputs) -> Sequence[int]:
    """The prompt; `input_lengths` tells how much of it is no padding."""
    ids, length = inputs.values["input_ids"], inputs.one("input_lengths")
    if length is not None and not 0 <= length <= len(ids):
        raise invalid("input_lengths", f"must be from 0 to {len(ids)}, the size of input_ids")
    return ids[:length]


def _read_words(inputs: Inputs, name: str) -> Iterator[Sequence[int]]:
    """TensorRT-LLM's layout: the first row is the words' ids joined, the second where each word ends, padded with -1."""
    values = inputs.values.get(name, ())
    size = len(values) // 2
    ids, ends = values[:size], [end for end in values[size:] if end >= 0]
    start = 0
    for end in ends:
        if not start < end <= size:
            raise invalid(name, "its second row must hold rising ends of words, then -1")
        yield ids[start:end]
        start = end


def _read_texts(inputs: Inputs, name: str) -> tuple[str, ...]:
    """Empty texts are what callers send who have none."""
    return tuple(filter(None, inputs.values.get(name, ())))


def _refuse_bans(inputs: Inputs, served: Served) -> None:
    name = served.contract.bans
    if any(_read_words(inputs, name) if served.contract is TOKENS else _read_texts(inputs, name)):
        raise option_unsupported(name, "this router does not serve it")


def _check_end_id(inputs: Inputs, served: Served) -> None:
    """Workers know how answers end; a caller who says it may only say the same."""
    if inputs.one("end_id") not in (None, *served.end_ids):
        raise option_unsupported("end_id", "answers end with the model's own end tokens; others may be given as stop words")


def _read_sampling(inputs: Inputs) -> Sampling:
    """TensorRT-LLM counts a top-p of 0 as none."""
    return Sampling(
        temperature=inputs.one("temperature"),
        top_p=inputs.one("runtime_top_p", "top_p") or None,
        top_k=inputs.one("runtime_top_k", "top_k"),
        min_p=inputs.one("min_p"),
        seed=inputs.one("seed", "random_seed"),
        repetition_penalty=inputs.one("repetition_penalty"),
        presence_penalty=inputs.one("presence_penalty"),
        frequency_penalty=inputs.one("frequency_penalty"),
    )


def _read_guide(inputs: Inputs) -> Guide | None:
    kind = inputs.one("guided_decoding_guide_type")
    if kind is None:
        return None
    if kind not in {it.value for it in GuideKind}:
        raise invalid("guided_decoding_guide_type", f"must be one of {', '.join(it.value for it in GuideKind)}")
    return Guide(GuideKind(kind), inputs.one("guided_decoding_guide") or "")


def _read_empty_final(request: ModelInferRequest) -> bool:
    return bool(_read_parameter(request, EMPTY_FINAL, "bool_param"))


def _read_priority(request: ModelInferRequest) -> Priority:
    """Triton's levels begin with 1, the most urgent; 0 is its default."""
    level = _read_parameter(request, "priority", "int64_param", "uint64_param") or 0
    return Priority.INTERACTIVE if level <= 1 else Priority.STANDARD if level == 2 else Priority.BATCH


def _read_timeout(request: ModelInferRequest) -> float | None:
    """Triton's timeout is for the time in the queue, in microseconds; 0 is none."""
    microseconds = _read_parameter(request, "timeout", "int64_param", "uint64_param")
    return microseconds / 1e6 if microseconds and microseconds > 0 else None


def _read_parameter(request: ModelInferRequest, name: str, *members: str) -> int | None:
    if name not in request.parameters:
        return None
    parameter: InferParameter = request.parameters[name]
    member = parameter.WhichOneof("parameter_choice")
    if member not in members:
        raise invalid(name, f"must be {' or '.join(members)}")
    value: int = getattr(parameter, member)
    return value

"""The worker contract on the wire: Triton requests with TensorRT-LLM's tensor names out, lane frames in. See server/triton_model.py.

Uses tritonclient's copy of Triton's protos: they register package `inference`, and a second copy in one process cannot be loaded.
"""

from __future__ import annotations

import json
import logging
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tritonclient.grpc import service_pb2 as triton
from tritonclient.grpc.model_config_pb2 import ModelConfig

from router.errors import WorkerError, engine_refused, worker_lost
from router.model import GenerationRequest, WorkerDelta, WorkerDescription, WorkerFinish, WorkerLoad
from router.upstream.link import LinkBroken, Receipt
from router.upstream.tensors import add_tensor, add_text, guide_texts, raw_outputs, read_numbers, read_texts, sampling_tensors

MODEL = "tensorrt_llm"

log = logging.getLogger("tidegate.contract")

_REFUSAL = re.compile(r"(?!(?:lane|request): )[a-z_]+: ")
"""How our model names what is wrong with a generation. `lane` and `request` name its place there, with which nothing is wrong elsewhere."""

_LOAD_NUMBERS = len(fields(WorkerLoad))
"""A newer worker may tell more of its load, an older one less: workers and routers are upgraded one by one, in any order."""


class FrameInvalid(LinkBroken):
    """A response that is no lane frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One lane frame: what it brings, by the generation's number. `description` comes with the first frame, `receipts` after a break.

    `kv_events` are TensorRT-LLM's KV cache events, oldest first; none from engines that have none.
    """

    sequence: int
    load: WorkerLoad
    description: WorkerDescription | None
    entries: list[tuple[int, WorkerDelta]]
    receipts: list[Receipt]
    kv_events: list[Mapping[str, Any]]


def is_lane_model(config: ModelConfig) -> bool:
    """Whether a model's configuration is that of our own model: it has the outputs that frames are made of."""
    return {"sequence", "load", "request", "counts", "finish"} <= {output.name for output in config.output}


def attach(lane: str, router: str = "") -> triton.ModelInferRequest:
    """Makes the stream a lane of the router with that name."""
    request = _request("attach", lane)
    request.parameters["router"].string_param = router
    return request


def acknowledge(lane: str, sequence: int) -> triton.ModelInferRequest:
    """Frames up to `sequence` were read."""
    request = _request("ack", lane)
    request.parameters["sequence"].int64_param = sequence
    return request


def cancel(lane: str, numbers: Sequence[int]) -> triton.ModelInferRequest:
    """Ends requests of the lane at the next step."""
    request = _request("cancel", lane)
    add_tensor(request, "request_ids", "INT64", numbers)
    return request


def generate(lane: str, number: int, asked: GenerationRequest) -> triton.ModelInferRequest:
    """One generation whose tokens travel in the lane's frames."""
    request = _request("generate", lane)
    request.id = str(number)
    request.parameters["request"].int64_param = number
    add_tensor(request, "input_ids", "INT32", asked.prompt)
    add_tensor(request, "input_lengths", "INT32", [len(asked.prompt)])
    add_tensor(request, "request_output_len", "INT32", [asked.max_new_tokens])
    for name, datatype, value in sampling_tensors(asked.sampling):
        add_tensor(request, name, datatype, [value])
    for name, text in guide_texts(asked.guide):
        add_text(request, name, text)
    if asked.min_new_tokens is not None:
        add_tensor(request, "min_tokens", "INT32", [asked.min_new_tokens])
    if asked.log_probs:
        add_tensor(request, "return_log_probs", "BOOL", [True])
    if asked.account:
        request.parameters["account"].string_param = asked.account
    if asked.cache_salt:
        request.parameters["cache_salt"].string_param = asked.cache_salt
    return request


def to_error(text: str) -> WorkerError:
    """What the text means that a generation got in place of a place in the engine: another worker may take it, unless it is refused for
    what it is. All other texts are of a worker that takes none: its engine is down, its lane has ended, or Triton unloads the model."""
    return engine_refused() if _REFUSAL.match(text) else worker_lost()


def read_frame(response: triton.ModelInferResponse) -> Frame:
    """A lane frame from Triton's response. Raises FrameInvalid."""
    try:
        raw = raw_outputs(response)
        details = [json.loads(text) for text in read_texts(raw["detail"])] if "detail" in raw else []
        return Frame(
            sequence=read_numbers(raw["sequence"], "q")[0],
            load=WorkerLoad(*read_numbers(raw["load"], "q")[:_LOAD_NUMBERS]),
            description=_read_description(details),
            entries=list(_read_entries(raw, {detail.get("request"): detail for detail in details})),
            receipts=list(_read_receipts(details)),
            kv_events=[event for detail in details for event in detail.get("kv_events", ())],
        )
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, OverflowError, RecursionError, struct.error) as error:
        raise FrameInvalid(f"not a lane frame: {type(error).__name__}") from error


def _read_entries(raw: Mapping[str, bytes], details: Mapping[int | None, Mapping[str, Any]]) -> Iterator[tuple[int, WorkerDelta]]:
    tokens, at = read_numbers(raw["output_ids"], "i"), 0
    log_probs = read_numbers(raw["output_log_probs"], "f") if "output_log_probs" in raw else None
    for number, count, code in zip(read_numbers(raw["request"], "q"), read_numbers(raw["counts"], "i"), raw["finish"], strict=True):
        begin, at = at, at + count
        delta = WorkerDelta(tokens[begin:at], _FINISHES[code], log_probs and log_probs[begin:at])
        yield number, _finish(delta, details.get(number, {})) if code else delta
    if at != len(tokens):
        raise ValueError("counts and tokens differ")


_FINISHES = {finish.value: finish for finish in WorkerFinish}


def _finish(last: WorkerDelta, detail: Mapping[str, Any]) -> WorkerDelta:
    return last._replace(
        cached_tokens=detail.get("cached_tokens"),
        refusal=detail.get("error", "") if last.finish is WorkerFinish.REFUSED else "",
        prefill_s=detail.get("prefill_ns", 0) / 1e9,
        decode_s=detail.get("decode_ns", 0) / 1e9,
    )


def _read_description(details: Sequence[Mapping[str, Any]]) -> WorkerDescription | None:
    for detail in details:
        if "description" in detail:
            told = detail["description"]
            pool, block = told["total_blocks"] * told["tokens_per_block"], told["tokens_per_block"]
            same = ("model", "engine", "profile", "context_tokens", "vocabulary", "max_sequences")
            isolates = told.get("isolates_salts", False)  # older workers take no salt
            return WorkerDescription(**{it: told[it] for it in same}, pool_tokens=pool, block_tokens=block, isolates_salts=isolates)
    return None


def _read_receipts(details: Sequence[Mapping[str, Any]]) -> Iterator[Receipt]:
    lists = [detail.get("receipts", ()) for detail in details]
    for receipts in lists:
        for told in receipts if isinstance(receipts, list) else ():
            receipt = _read_receipt(told)
            if receipt:
                yield receipt


def _read_receipt(told: object) -> Receipt | None:
    """None for what is no receipt: the worker would send it again on every connection, so it may not break one."""
    match told:
        case {"account": str(account), "tokens": int(tokens), "cached_tokens": int() | None as cached}:
            return Receipt(account, tokens, cached or 0)
    log.error("a worker sent a receipt that is none")
    return None


def _request(op: str, lane: str) -> triton.ModelInferRequest:
    request = triton.ModelInferRequest(model_name=MODEL, id=op)
    request.parameters["op"].string_param = op
    request.parameters["lane"].string_param = lane
    return request

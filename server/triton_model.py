"""The Triton model `tensorrt_llm`: tensors and request parameters in, lane frames or single answers out.

Tensors carry TensorRT-LLM's names. The request parameter `op` says what a request is:

* absent or `generate`: one generation. Without `lane` its tokens come back on this request, as from the stock model, and `finish_reason`
  with the last of them. With `lane` and `request` they travel in the lane's frames and this request only gets its final flag.
  `account` is a text about it that comes back in a receipt when the lane breaks (receipts.py). `cache_salt` names those who may share its
  cached prefix: blocks are reused only under the same one. An engine that cannot keep salts apart says so (`isolates_salts` in the
  description, with a lane's first frame) and refuses a request that has one.
* `attach`: makes this stream the lane `lane` of the router `router`; its responses are frames until the stream closes, which cancels what
  belongs to it.
* `cancel`: ends the requests listed in `request_ids` (input INT64[n]) on `lane` at the next step.
* `ack`: the router has read the lane's frames up to `sequence`.

Where `lane_credential` is configured each of them, the first too, carries `credential`; see credential.py.

This file only translates; the loop is in stepper.py and what a lane sends in lanes.py.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from server.credential import Credential
from server.engine.base import Engine, Finish, Guide, GuideKind, Output, Request, Sampling
from server.lanes import Frame
from server.options import EngineOptions, build_engine, read_options
from server.spans import EngineSpans, export_to, read_headers
from server.stepper import Address, Stepper
from server.triton_metrics import EngineMetrics

log = logging.getLogger("tidegate.model")

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
DEFAULT_OUTPUT_TOKENS = 16

_FINISH_REASONS = {
    Finish.END_ID: b"stop",
    Finish.STOP_WORDS: b"stop",
    Finish.LENGTH: b"length",
    Finish.TIMED_OUT: b"timeout",
    Finish.CANCELLED: b"cancelled",
}


class TidegateModel:
    """What Triton's Python backend calls: `initialize`, `execute` and `finalize`."""

    def __init__(self, build: Callable[[EngineOptions], Engine] = build_engine, end_process: Callable[[int], None] = os._exit) -> None:
        self._build = build
        self._end_process = end_process

    def initialize(self, args: Mapping[str, str]) -> None:
        """Loads the engine; Triton reports the model ready when this returns."""
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
        options = read_options(json.loads(args["model_config"])["parameters"])
        self._credential = Credential(Path(options.lane_credential) if options.lane_credential else None)
        self._spans = EngineSpans(export_to(options.otlp_url))
        metrics = EngineMetrics(args["model_name"], args["model_version"], options.max_num_seqs)
        self._stepper = Stepper(lambda: self._build(options), metrics.observe)
        self._thread = threading.Thread(target=self._run, name="engine")
        self._thread.start()

    def execute(self, requests: Sequence[Any]) -> None:
        """Hands each request to the engine's thread; answers come from there."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                self._take(request, sender)
            except ValueError as error:
                _send_error(sender, str(error))

    def finalize(self) -> None:
        """Stops the engine's thread after its current step."""
        self._stepper.stop()
        self._thread.join()
        self._spans.close()

    def _run(self) -> None:
        try:
            self._stepper.run()
        except BaseException:
            log.critical("the engine's loop has failed; this process ends, for Triton would go on saying READY", exc_info=True)
            self._end_process(1)

    def _take(self, request: Any, sender: Any) -> None:
        parameters = json.loads(request.parameters() or "{}")
        self._credential.require(str(parameters.get("lane", "")), str(parameters.get("credential", "")))
        tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        take = self._operations().get(parameters.get("op", "generate"))
        if take is None:
            raise ValueError("op: must be generate, attach, cancel or ack")
        take(request, sender, parameters, tensors)

    def _operations(self) -> dict[str, Callable[..., None]]:
        return {"generate": self._generate, "attach": self._attach, "cancel": self._cancel, "ack": self._acknowledge}

    def _generate(self, request: Any, sender: Any, parameters: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
        address, headers = _read_address(parameters), read_headers(request.trace().get_context())
        reply = _Reply(sender, self._spans.open_request(headers), on_lane=address is not None)
        self._stepper.generate(replace(read_request(tensors, parameters), trace_headers=headers), reply, address)

    def _attach(self, request: Any, sender: Any, parameters: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
        self._stepper.attach(_required(parameters, "lane"), _LaneReply(sender), parameters.get("router", ""))

    def _cancel(self, request: Any, sender: Any, parameters: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
        self._stepper.cancel(_required(parameters, "lane"), _required(tensors, "request_ids").ravel().tolist())
        sender.send(flags=FINAL)

    def _acknowledge(self, request: Any, sender: Any, parameters: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
        self._stepper.acknowledge(_required(parameters, "lane"), int(_required(parameters, "sequence")))
        sender.send(flags=FINAL)


class _Reply:
    """A request's own response stream."""

    def __init__(self, sender: Any, span: Callable[[Output], None], *, on_lane: bool) -> None:
        self._sender = sender
        self._end_span = span
        self._on_lane = on_lane

    def send_output(self, output: Output) -> None:
        self._sender.send(pb_utils.InferenceResponse(output_tensors=list(_answer_tensors(output))))

    def end(self, output: Output) -> None:
        self._end_span(output)
        if output.error and not self._on_lane:
            _send_error(self._sender, output.error)
        else:
            self._sender.send(flags=FINAL)

    def refuse(self, message: str) -> None:
        _send_error(self._sender, message)

    def is_cancelled(self) -> bool:
        return bool(self._sender.is_cancelled())


class _LaneReply:
    """A lane's response stream."""

    def __init__(self, sender: Any) -> None:
        self._sender = sender

    def send_frame(self, frame: Frame) -> None:
        self._sender.send(pb_utils.InferenceResponse(output_tensors=frame_tensors(frame)))

    def end(self, error: str | None) -> None:
        if error:
            _send_error(self._sender, error)
        else:
            self._sender.send(flags=FINAL)

    def is_cancelled(self) -> bool:
        return bool(self._sender.is_cancelled())


def read_request(tensors: Mapping[str, Any], parameters: Mapping[str, Any]) -> Request:
    """A generation from its tensors and parameters. Raises ValueError naming the tensor."""
    prompt = _required(tensors, "input_ids").ravel().tolist()
    end_id, output_len = _scalar(tensors, "end_id"), _scalar(tensors, "request_output_len")
    return Request(
        number=0,
        prompt=prompt,
        max_new_tokens=DEFAULT_OUTPUT_TOKENS if output_len is None else output_len,
        sampling=Sampling(**{ours: _scalar(tensors, theirs) for ours, theirs in _SAMPLING}),
        end_ids=() if end_id is None else (end_id,),
        stop_ids=_read_stop_ids(tensors),
        log_probs=bool(_scalar(tensors, "return_log_probs")),
        guide=_read_guide(tensors),
        cache_salt=str(parameters.get("cache_salt", "")),
    )


def _read_address(parameters: Mapping[str, Any]) -> Address | None:
    """Where the tokens travel; None when they come back on the request itself."""
    if "lane" not in parameters:
        return None
    return Address(parameters["lane"], int(_required(parameters, "request")), parameters.get("account", ""))


def _read_stop_ids(tensors: Mapping[str, Any]) -> tuple[int, ...]:
    """TensorRT-LLM's layout: row 0 the words' ids joined, row 1 where each word ends, padded with -1."""
    if "stop_words_list" not in tensors:
        return ()
    ids, ends = tensors["stop_words_list"].reshape(2, -1).tolist()
    words = sum(end >= 0 for end in ends)
    if ends[:words] != list(range(1, words + 1)):
        raise ValueError("stop_words_list: only words of one token are served; the router matches texts itself")
    return tuple(ids[:words])


def _read_guide(tensors: Mapping[str, Any]) -> Guide | None:
    if "guided_decoding_guide_type" not in tensors:
        return None
    kind, text = _text(tensors, "guided_decoding_guide_type"), _text(tensors, "guided_decoding_guide")
    if kind not in set(GuideKind):
        raise ValueError(f"guided_decoding_guide_type: must be one of {', '.join(GuideKind)}")
    return Guide(GuideKind(kind), text)


def _text(tensors: Mapping[str, Any], name: str) -> str:
    """A BYTES scalar, "" when absent. Raises ValueError for bytes that are not UTF-8."""
    try:
        return tensors[name].ravel()[0].decode() if name in tensors else ""
    except UnicodeDecodeError:
        raise ValueError(f"{name}: is not UTF-8") from None


def _required(values: Mapping[str, Any], name: str) -> Any:
    """A parameter or tensor. Raises ValueError naming it."""
    if name not in values:
        raise ValueError(f"{name}: not present in the request")
    return values[name]


def _scalar(tensors: Mapping[str, Any], name: str) -> Any:
    return tensors[name].ravel()[0].item() if name in tensors else None


_SAMPLING = (
    ("temperature", "temperature"),
    ("top_k", "runtime_top_k"),
    ("top_p", "runtime_top_p"),
    ("min_p", "min_p"),
    ("seed", "seed"),
    ("repetition_penalty", "repetition_penalty"),
    ("presence_penalty", "presence_penalty"),
    ("frequency_penalty", "frequency_penalty"),
    ("min_tokens", "min_tokens"),
)


def frame_tensors(frame: Frame) -> list[Any]:
    """A frame as tensors; see lanes.Frame for the shapes."""
    load = frame.load
    numbers = [load.active, load.queued, load.free_blocks, load.total_blocks, load.tokens_per_block, load.step_us, frame.own]
    tensors = [
        _tensor("sequence", [frame.sequence], np.int64),
        _tensor("load", numbers, np.int64),
        _tensor("request", frame.request, np.int64),
        _tensor("counts", frame.counts, np.int32),
        _tensor("output_ids", frame.output_ids, np.int32),
        _tensor("finish", frame.finish, np.uint8),
    ]
    if frame.log_probs is not None:
        tensors.append(_tensor("output_log_probs", frame.log_probs, np.float32))
    if frame.detail:
        tensors.append(_tensor("detail", [text.encode() for text in frame.detail], np.object_))
    return tensors


def _answer_tensors(output: Output) -> list[Any]:
    tensors = [
        _tensor("output_ids", output.tokens, np.int32),
        _tensor("sequence_length", [len(output.tokens)], np.int32),
    ]
    if output.log_probs is not None:
        tensors.append(_tensor("output_log_probs", output.log_probs, np.float32))
    if output.finish in _FINISH_REASONS:
        tensors.append(_tensor("finish_reason", [_FINISH_REASONS[output.finish]], np.object_))
    return tensors


def _tensor(name: str, values: Sequence[Any], dtype: Any) -> Any:
    return pb_utils.Tensor(name, np.asarray(values, dtype=dtype))


def _send_error(sender: Any, message: str) -> None:
    error = pb_utils.TritonError(message, pb_utils.TritonError.INTERNAL)
    sender.send(pb_utils.InferenceResponse(error=error), flags=FINAL)

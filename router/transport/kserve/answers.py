"""Answers as Triton gives them: a turn's events in, responses out.

A streamed answer has a response for each step; when the caller reads more slowly than the engine makes tokens, one response holds those of
several steps. The last one comes when the turn has been settled, and brings no tokens. Its parameters say that it is the last, how the turn
ended and what it used. An answer that is not streamed is one response with all of this.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tritonclient.grpc.service_pb2 import ModelInferResponse, ModelStreamInferResponse

from router.errors import TidegateError, Violation, field_invalid, guide_invalid
from router.model import Failed, Finished, Logprobs, Started, TextDelta, TurnEvent, Usage
from router.tokens import TokenDelta
from router.transport.kserve.asked import Asked
from router.transport.kserve.contracts import TOKENS, VERSION, Contract

FINAL = "triton_final_response"

Output = tuple[str, str, int, bytes]
"""Name, data type, number of values, and their bytes."""


class Reply:
    """The answer to one request, and the sink of its turn. `started_at` is when a worker took it, by `time.perf_counter`."""

    def __init__(self, asked: Asked, on_news: Callable[[Reply], None] = lambda reply: None) -> None:
        """`on_news` hears that there is something to write, once until it is written, and must not wait."""
        self.asked = asked
        self.failure: TidegateError | None = None
        self.started_at: float | None = None
        self._on_news = on_news
        self._has_told = False
        self._tokens = list(asked.turn.input_ids or ()) if asked.form.echo else []
        self._texts = [asked.turn.text or ""] if asked.form.echo else []
        self._log_probs: list[float] = []
        self._usage = Usage(0, 0)
        self._finish_reason = ""

    @property
    def ended(self) -> bool:
        """Whether no more events come."""
        return bool(self._finish_reason or self.failure)

    def put(self, events: Sequence[TurnEvent]) -> None:
        """Takes a turn's events."""
        for event in events:
            self._take(event)
        if not self._has_told and (self.ended or (self.asked.form.streaming and self._has_pending())):
            self._has_told = True
            self._on_news(self)

    def write(self, response: ModelInferResponse) -> None:
        """Fills a response with what is new."""
        response.model_name, response.model_version, response.id = self.asked.served.name, VERSION, self.asked.id
        is_last = self.ended and not self.failure
        response.parameters[FINAL].bool_param = is_last
        if is_last:
            self._write_end(response)
        if self._has_pending() or not (is_last and self.asked.form.streaming and self.asked.form.empty_final):
            for output in self._outputs():
                self._write_output(response, *output)
        self._tokens, self._texts = [], []

    def __iter__(self) -> Iterator[ModelStreamInferResponse]:
        """What is new, as a stream has it: what came before a failure, then the failure."""
        failure, self._has_told = self.failure, False
        if failure is None or (self.asked.form.streaming and self._has_pending()):
            message = ModelStreamInferResponse()
            self.write(message.infer_response)
            yield message
        if failure is not None:
            yield from Notice(self.asked.served.name, self.asked.id, failure)

    def _take(self, event: TurnEvent) -> None:
        match event:
            case TokenDelta(tokens, log_probs):
                self._tokens += tokens
                self._log_probs += log_probs or ()
            case TextDelta(text):
                self._texts.append(text)
            case Logprobs(tokens):
                self._log_probs += [token.logprob for token in tokens]
            case Started():
                self.started_at = time.perf_counter()
            case Usage():
                self._usage = event
            case Finished(reason):
                self._finish_reason = reason.value
            case Failed(error):
                self.failure = _name_inputs(error, self.asked.served.contract)

    def _has_pending(self) -> bool:
        return bool(self._tokens or self._texts)

    def _write_end(self, response: ModelInferResponse) -> None:
        response.parameters["finish_reason"].string_param = self._finish_reason
        response.parameters["prompt_tokens"].int64_param = self._usage.prompt_tokens
        response.parameters["cached_tokens"].int64_param = self._usage.cached_tokens
        response.parameters["completion_tokens"].int64_param = self._usage.completion_tokens

    def _outputs(self) -> Iterator[Output]:
        if self.asked.served.contract is TOKENS:
            yield "output_ids", "INT32", len(self._tokens), _pack("i", self._tokens)
            yield "sequence_length", "INT32", 1, _pack("i", [len(self._tokens)])
        else:
            text = "".join(self._texts).encode()
            yield "text_output", "BYTES", 1, struct.pack("<I", len(text)) + text
        if self.asked.turn.logprobs:
            # TensorRT-LLM's are those of the whole answer so far.
            yield "output_log_probs", "FP32", len(self._log_probs), _pack("f", self._log_probs)
            yield "cum_log_probs", "FP32", 1, _pack("f", [sum(self._log_probs)])

    def _write_output(self, response: ModelInferResponse, name: str, datatype: str, size: int, data: bytes) -> None:
        form = self.asked.form
        if name in form.outputs:
            # Texts have no batch dimension: NVIDIA's own postprocessing gives them so.
            ones = len(self.asked.served.contract.outputs[name].dims) if form.batched and datatype != "BYTES" else 0
            response.outputs.add(name=name, datatype=datatype, shape=[1] * ones + [size])
            response.raw_output_contents.append(data)


@dataclass(frozen=True, slots=True)
class Notice:
    """A last response without outputs: a request's failure, which Triton tells as text, or that there is nothing to say."""

    name: str
    request_id: str
    failure: TidegateError | None = None

    def __iter__(self) -> Iterator[ModelStreamInferResponse]:
        message = ModelStreamInferResponse()
        if self.failure is not None:
            message.error_message = f"{self.failure.reason}: {self.failure.message}"
        message.infer_response.model_name, message.infer_response.id = self.name, self.request_id
        message.infer_response.parameters[FINAL].bool_param = True
        yield message


def _name_inputs(error: TidegateError, contract: Contract) -> TidegateError:
    """A fault of the turn in words that the caller knows."""
    wrong = [Violation(contract.name_of(it.field), it.description) for it in error.violations]
    match error.reason:
        case "FIELD_INVALID":
            return field_invalid(*wrong)
        case "GUIDE_INVALID":
            return guide_invalid(wrong[0].description, wrong[0].field)
    return error


def _pack(form: str, values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}{form}", *values)

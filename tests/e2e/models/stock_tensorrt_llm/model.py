"""TensorRT-LLM's stock model without TensorRT-LLM: the contract of its C++ backend (1.2.1), enforced, in front of a script.

Loaded by the real Triton with the stock config.pbtxt, whose `gpt_model_path` names a folder in the engine's place:

* `config.json`: the engine's limits `max_input_len` and `max_seq_len`;
* `script.json`, read for each request: `deltas` (lists of token ids, one a step), `repeat`, `step_s`, and `error`, given after the deltas;
* `log.jsonl`, written here: what came and what became of it, for tests to read.

As with the C++ backend every tensor has a batch dimension of 1 (Triton takes it from scalars, by their `reshape`), a throw is an INTERNAL
error with its text, an answer is cut silently at `max_seq_len`, the end token is not emitted but stop words are, a cancelled answer ends
like any other, and nobody is told why one ended.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
SHAPES = {"input_ids": (np.int32, 2), "stop_words_list": (np.int32, 3), "seed": (np.uint64, 1)}
FLAGS = {"streaming", "return_log_probs"}
TEXTS = {"guided_decoding_guide_type", "guided_decoding_guide"}
SCALARS = {"temperature", "runtime_top_p", "repetition_penalty", "presence_penalty", "frequency_penalty"}
REQUIRED = ("input_ids", "input_lengths", "request_output_len")


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        parameters = json.loads(args["model_config"])["parameters"]
        self._folder = Path(parameters["gpt_model_path"]["string_value"])
        self._limits = json.loads((self._folder / "config.json").read_text())
        self._threads: list[threading.Thread] = []
        self._stopping = False

    def execute(self, requests: Sequence[Any]) -> None:
        for request in requests:
            thread = threading.Thread(target=self._serve, args=(request, request.get_response_sender()))
            self._threads.append(thread)
            thread.start()

    def finalize(self) -> None:
        self._stopping = True
        for thread in self._threads:
            thread.join()

    def _serve(self, request: Any, sender: Any) -> None:
        cancelled = False
        try:
            asked = Asked(request)
            self._log("request", id=request.request_id(), **asked.scalars, **asked.texts)
            cancelled = self._answer(asked, json.loads((self._folder / "script.json").read_text()), sender)
        except Exception as error:
            failure = pb_utils.TritonError(str(error), pb_utils.TritonError.INTERNAL)
            sender.send(pb_utils.InferenceResponse(error=failure), flags=FINAL)
        self._log("end", id=request.request_id(), cancelled=cancelled)

    def _answer(self, asked: Asked, script: dict[str, Any], sender: Any) -> bool:
        """Plays the script; returns whether the request was cancelled."""
        if len(asked.prompt) > self._limits["max_input_len"]:
            raise RuntimeError(
                "Executor failed process requestId 7 due to the following error: Encountered an error when fetching new request: Prompt "
                f"length ({len(asked.prompt)}) exceeds maximum input length ({self._limits['max_input_len']}). Set log level to info."
            )
        emitted, left = 0, min(asked.most, self._limits["max_seq_len"] - len(asked.prompt))
        for delta in cycle(script["deltas"]) if script.get("repeat") else script["deltas"]:
            tokens, is_last = asked.cut(delta[:left])
            emitted, left = emitted + len(tokens), left - len(tokens)
            cancelled = self._stopping or sender.is_cancelled()
            if is_last or cancelled or not left:
                sender.send(asked.respond(tokens, emitted), flags=FINAL)
                return cancelled
            sender.send(asked.respond(tokens, emitted))
            time.sleep(script.get("step_s", 0.01))
        if "error" in script:
            raise RuntimeError(script["error"])
        sender.send(asked.respond([], emitted), flags=FINAL)
        return False

    def _log(self, event: str, **facts: Any) -> None:
        with (self._folder / "log.jsonl").open("a") as log:
            log.write(json.dumps({"event": event, **facts}) + "\n")


class Asked:
    """A request, its tensors checked as the backend does."""

    def __init__(self, request: Any) -> None:
        tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        require_outputs(request.requested_output_names())
        for name in REQUIRED:
            require(name in tensors, f"{name} is not present in the request.")
        for name, values in tensors.items():
            dtype, dimensions = expected_shape(name)
            require(values.dtype == dtype and values.ndim == dimensions and values.shape[0] == 1, f"{name}: {values.dtype}{values.shape}")
        self.scalars = {name: values[0].item() for name, values in tensors.items() if values.ndim == 1}
        self.texts = {name: values[0, 0].decode() for name, values in tensors.items() if name in TEXTS}
        self.prompt = tensors["input_ids"][0].tolist()
        self.most = self.scalars["request_output_len"]
        self._end_id = self.scalars.get("end_id")
        self._stop_words = read_words(tensors["stop_words_list"][0]) if "stop_words_list" in tensors else []
        require(self.scalars["input_lengths"] == len(self.prompt), "input_lengths and input_ids differ")
        require(bool(self.scalars.get("streaming")), "this test streams")

    def cut(self, delta: list[int]) -> tuple[list[int], bool]:
        """What of a delta is emitted, and whether it ends the answer."""
        for at, token in enumerate(delta):
            if token == self._end_id:
                return delta[:at], True
            if [token] in self._stop_words:
                return delta[: at + 1], True
        return delta, False

    def respond(self, tokens: Sequence[int], emitted: int) -> Any:
        """New tokens; log probabilities, though, are those of all that were emitted."""
        tensors = {"output_ids": np.array([[tokens]], np.int32), "sequence_length": np.array([[len(tokens)]], np.int32)}
        if self.scalars.get("return_log_probs"):
            tensors["output_log_probs"] = np.array([[[log_prob_of(place) for place in range(emitted)]]], np.float32)
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, values) for name, values in tensors.items()])


def log_prob_of(place: int) -> float:
    """That of the answer's token in this place."""
    return -(place + 1) / 8


def expected_shape(name: str) -> tuple[Any, int]:
    """Type and number of dimensions, as after Triton's reshape."""
    if name in TEXTS:
        return np.object_, 2
    if name in FLAGS:
        return np.bool_, 1
    return SHAPES.get(name, (np.float32 if name in SCALARS else np.int32, 1))


def require_outputs(names: Sequence[str]) -> None:
    for name in ("output_ids", "sequence_length"):
        require(not names or name in names, f"{name} tensor must be present in list of output tensors")


def require(holds: bool, message: str) -> None:
    if not holds:
        raise RuntimeError(message)


def read_words(words: np.ndarray[Any, Any]) -> list[list[int]]:
    """Row 0 holds all words' tokens, row 1 where each word ends, padded with -1."""
    require(words.shape[0] == 2, "stop words: the shape must be [2, n]")
    ends = [end for end in words[1].tolist() if end != -1]
    require(words[1].tolist()[: len(ends)] == ends, "stop words: padding between offsets")
    require(sorted(set(ends)) == ends and all(0 < end <= words.shape[1] for end in ends), "stop words: offsets must rise and lie in bounds")
    return [words[0].tolist()[start:end] for start, end in zip([0, *ends], ends, strict=False)]

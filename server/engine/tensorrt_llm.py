"""The GPU engine: TensorRT-LLM's LLM API behind the engine port, from 1.2.1 on.

The library runs by itself: in-flight batching, paged KV cache, prefix reuse and chunked prefill are in its executor, a process for each
GPU. The port however is asked. So a step here computes nothing: it waits for the next burst of responses, which is what one iteration of
the executor brought, and gives up after `PATIENCE_S`, so that cancels, new requests and heartbeats go on during a long prefill. Responses
are gathered in trtllm_loop.py and read in trtllm_results.py; trtllm_options.py holds what the library is given.

Facts about the library that shaped this file (1.2.1 to 1.4):

* A prompt longer than the engine takes can end the executor, and an output beyond the context is cut silently: both are refused before.
* A response that is a RequestError is the end of that request. Any other exception is the executor's, and ends them all.
* Before 1.4 a worker process that is killed leaves its requests waiting for ever: an executor that has requests, and neither answers nor
  counts an iteration for `SILENCE_S`, is taken for dead.
* `shutdown()` of a dead executor may wait for ever as well. It is given `CLOSE_S`.
* The number of KV blocks is known only from the statistics of a first iteration, so one request is run at start.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from server.engine.base import Description, EngineBroken, Finish, Load, Output, Request, RequestRefused, check_request
from server.engine.trtllm_loop import CLOSE_S, ResponseLoop
from server.engine.trtllm_options import RequestWriter, describe_model, load_llm, read_folder
from server.engine.trtllm_results import Answer, describe_error, read_load
from server.options import TOKENS_PER_BLOCK, EngineOptions

PATIENCE_S = 0.01
SILENCE_S = 120.0
"""More than anything between two signs of life takes, compiling a kernel in the middle of a request included."""
STATISTICS_S = 10.0

log = logging.getLogger("tidegate.tensorrt_llm")


def import_library() -> Any:
    """TensorRT-LLM, with its runtime for engines of `trtllm-build` where it still has one (up to 1.2)."""
    library = importlib.import_module("tensorrt_llm")
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("tensorrt_llm._tensorrt_engine")
    return library


class TensorRtLlmEngine:
    """The engine port over `library.LLM`; `library` is the package tensorrt_llm."""

    def __init__(self, options: EngineOptions, library: Any, silence_s: float = SILENCE_S) -> None:
        folder = read_folder(options)
        self._silence_s = silence_s
        self._request_error: type[Exception] = library.llmapi.RequestError
        self._running: dict[int, Any] = {}
        self._llm = load_llm(library, options, folder)
        self._responses = ResponseLoop(self._llm, self._request_error, options.event_buffer_max_size)
        self._open = True
        try:
            self._description = describe_model(options, folder, self._llm.tokenizer)
            self._requests = RequestWriter(library, options, self._description.end_ids)
            self._warm_up()
        except BaseException:
            self.close()
            raise

    @property
    def description(self) -> Description:
        return self._description

    def submit(self, request: Request) -> None:
        check_request(request, self._description)
        try:
            response = self._start(request)
        except RequestRefused:
            raise
        except (self._request_error, ValueError, TypeError) as error:
            raise RequestRefused(describe_error(error)) from error
        except Exception as error:
            self._responses.die(error)
            raise EngineBroken(f"tensorrt_llm took no request: {type(error).__name__}") from error
        self._running[request.number] = response

    def cancel(self, number: int) -> None:
        response = self._running.pop(number, None)
        if response is not None:
            self._responses.abort(response)

    def has_work(self) -> bool:
        return self._open and bool(self._running or self._responses.death)

    def step(self) -> list[Output]:
        outputs = [output for output in self._responses.take(PATIENCE_S) if output.number in self._running]
        for output in outputs:
            if output.finish is not Finish.RUNNING:
                del self._running[output.number]
        if not outputs:
            self._check_life()
        return outputs

    def load(self) -> Load:
        return read_load(self._responses.statistics, len(self._running), self._description)

    def take_kv_events(self) -> list[Mapping[str, object]]:
        return self._responses.take_events()

    def close(self) -> None:
        self._open = False
        self._running.clear()
        closing = threading.Thread(target=self._shut_down, name="tensorrt_llm shutdown", daemon=True)
        closing.start()
        closing.join(CLOSE_S)
        self._responses.close()

    def _start(self, request: Request) -> Any:
        arguments = self._requests.write(request)
        if not self._running:
            self._responses.listen()
        return self._responses.start(Answer(request, self._description), arguments)

    def _check_life(self) -> None:
        """Raises EngineBroken when the executor is dead. What it brought before has been handed on by then."""
        if self._responses.death:
            raise EngineBroken(self._responses.death)
        if self._running and self._responses.silent_s() > self._silence_s:
            raise EngineBroken("tensorrt_llm neither answers nor counts iterations")

    def _warm_up(self) -> None:
        """Runs one request: the first is slow, and the statistics that come with it tell the size of the KV cache."""
        self.submit(Request(0, [1] * TOKENS_PER_BLOCK, 2))
        self._responses.watch()
        while self.has_work():
            for output in self.step():
                if output.error:
                    raise EngineBroken(output.error)
        blocks = self._responses.wait_for_statistics(STATISTICS_S).get("kvCacheStats")
        if not blocks:
            log.warning("no statistics of the KV cache; it is taken to hold one full context")
            return
        self._description = replace(self._description, total_blocks=blocks["maxNumBlocks"], tokens_per_block=blocks["tokensPerBlock"])

    def _shut_down(self) -> None:
        try:
            self._llm.shutdown()
        except Exception as error:
            log.warning("shutdown failed: %s", describe_error(error))

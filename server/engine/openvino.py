"""The CPU engine: OpenVINO GenAI's ContinuousBatchingPipeline behind the engine port.

In-flight batching, a paged KV cache with prefix caching, and chunked prefill (`dynamic_split_fuse`, at most `max_num_batched_tokens` a
step). Facts about the library that shaped this file (openvino-genai 2026.4.1):

* `step()` holds the GIL for its whole length, so steps are kept short by the prefill chunk.
* `read()` with nothing there waits with the GIL held, for ever: `can_read()` is asked first.
* A cancelled sequence's blocks are freed in the next `step()`, so cancelled sequences count as work until one has run.
* A duplicate request id makes `step()` raise, and the pipeline never works again: ids come from the caller's counter.
* The library queues without telling; waiting requests are therefore kept here, and queue time is exact.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import openvino
import openvino_genai

from server.engine.base import (
    Description,
    EngineBroken,
    Finish,
    Guide,
    Load,
    Output,
    Request,
    RequestRefused,
    Sampling,
    Timing,
    check_request,
)
from server.guides import compile_guide
from server.options import TOKENS_PER_BLOCK, EngineOptions, describe_folder

MAX_GUIDES = 1000
"""The library keeps every grammar that it compiled, 0.1 to 0.8 MiB each, for ever: after this many different ones it is loaded anew."""

PROFILES: dict[str, dict[str, object]] = {
    # Activations and KV cache are 8 bits wide in both cases and f32 is as fast as the library's default (bf16 where the CPU has it), but it
    # answers alike on every CPU, and better: 12 of 14 simple questions against 10.
    "fast": {"INFERENCE_PRECISION_HINT": "f32"},
    # A batch answers exactly as each request alone, and a resumed answer continues exactly, only when all three are set.
    "deterministic": {
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f32",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
    },
}


@dataclass(slots=True)
class _Sequence:
    """A request inside the pipeline. Times are monotonic nanoseconds, `arrived_ns` is wall-clock."""

    request: Request
    config: Any
    arrived_ns: int
    submitted: int
    scheduled: int = 0
    first_token: int = 0
    produced: int = 0
    handle: Any = None


class OpenVinoEngine:
    """The engine port over ContinuousBatchingPipeline."""

    def __init__(self, options: EngineOptions, *, max_guides: int = MAX_GUIDES) -> None:
        self._max_guides = max_guides
        self._options = options
        # The library has no salts: nobody's prefixes are reused, or everybody's are.
        self._description = replace(describe_folder(options), isolates_salts=not options.enable_kv_cache_reuse)
        self._guides: set[Guide] = set()
        self._waiting: deque[_Sequence] = deque()
        self._running: dict[int, _Sequence] = {}
        self._cancelled = False
        self._step_us = 0
        self._pipeline = load_pipeline(options)
        self._warm_up()

    @property
    def description(self) -> Description:
        return self._description

    def submit(self, request: Request) -> None:
        check_request(request, self._description)
        self._check_options(request)
        config = generation_config(request, self._description.end_ids)
        try:
            config.validate()
        except RuntimeError:
            raise RequestRefused("sampling: this engine cannot combine these options") from None
        if request.guide is not None:
            self._guides.add(request.guide)
        self._waiting.append(_Sequence(request, config, time.time_ns(), time.monotonic_ns()))

    def cancel(self, number: int) -> None:
        sequence = self._running.pop(number, None)
        if sequence is not None:
            sequence.handle.cancel()
            self._cancelled = True
        else:
            self._waiting = deque(s for s in self._waiting if s.request.number != number)

    def has_work(self) -> bool:
        return bool(self._running or self._waiting or self._cancelled)

    def step(self) -> list[Output]:
        self._admit()
        self._cancelled = False
        started = time.monotonic_ns()
        try:
            self._pipeline.step()
        except Exception as error:
            raise EngineBroken(f"openvino step failed: {type(error).__name__}") from error
        now = time.monotonic_ns()
        self._step_us = (now - started) // 1000
        return [output for sequence in list(self._running.values()) if (output := self._collect(sequence, now))]

    def load(self) -> Load:
        total = self._description.total_blocks
        used = self._pipeline.get_metrics().cache_usage / 100 if self._running else 0.0
        return Load(
            active=len(self._running),
            queued=len(self._waiting),
            free_blocks=total - round(total * used),
            total_blocks=total,
            tokens_per_block=TOKENS_PER_BLOCK,
            step_us=self._step_us,
        )

    def take_kv_events(self) -> list[Mapping[str, object]]:
        return []

    def close(self) -> None:
        self._running.clear()
        self._waiting.clear()
        self._cancelled = False
        del self._pipeline

    def _admit(self) -> None:
        if len(self._guides) > self._max_guides and not self._renew():
            return
        now = time.monotonic_ns()
        while self._waiting and len(self._running) < self._description.max_sequences:
            sequence = self._waiting.popleft()
            ids = np.asarray([sequence.request.prompt], dtype=np.int64)
            sequence.handle = self._pipeline.add_request(sequence.request.number, openvino.Tensor(ids), sequence.config)
            sequence.scheduled = now
            self._running[sequence.request.number] = sequence

    def _renew(self) -> bool:
        """Loads the pipeline anew once what runs has ended; until then, nothing new begins. Tells whether it did."""
        if self._running:
            return False
        self._guides.clear()
        self._pipeline = load_pipeline(self._options)
        return True

    def _collect(self, sequence: _Sequence, now: int) -> Output | None:
        """The sequence's news after a step, or None: it is still in prefill."""
        handle = sequence.handle
        output = Output(sequence.request.number, [])
        while handle.can_read():
            self._append(output, handle.read()[0], sequence, now)
        if output.finish is Finish.RUNNING and handle.get_status() == openvino_genai.GenerationStatus.IGNORED:
            output.finish, output.error = Finish.FAILED, "the KV cache has no room for this request"
        if output.finish is not Finish.RUNNING:
            del self._running[sequence.request.number]
            output.timing = _timing(sequence, now)
        return output if output.tokens or output.finish is not Finish.RUNNING else None

    def _append(self, output: Output, generated: Any, sequence: _Sequence, now: int) -> None:
        tokens = generated.generated_ids
        sequence.first_token = sequence.first_token or now
        output.finish = _FINISH[generated.finish_reason]
        # TensorRT-LLM leaves the end token out of its output, and so do we: a router sees one contract.
        ended = output.finish is Finish.END_ID and tokens and tokens[-1] in self._end_ids(sequence.request)
        tokens = tokens[:-1] if ended else tokens
        sequence.produced += len(tokens)
        output.tokens += tokens
        if sequence.request.log_probs:
            output.log_probs = (output.log_probs or []) + generated.generated_log_probs[: len(tokens)]

    def _check_options(self, request: Request) -> None:
        """Refuses what the library cannot do, by name."""
        if request.lora:
            raise RequestRefused("lora: this engine loads adapters for all requests or none; run an engine for each adapter")
        if request.cache_salt and not self._description.isolates_salts:
            raise RequestRefused(
                "cache_salt: this engine cannot keep prefixes apart; start it with enable_kv_cache_reuse=false to serve several tenants"
            )

    def _end_ids(self, request: Request) -> tuple[int, ...]:
        return request.end_ids or self._description.end_ids

    def _warm_up(self) -> None:
        """Runs one request: the library repacks its weights in the first inference, and no caller should wait for that."""
        self.submit(Request(0, [1] * TOKENS_PER_BLOCK, 2))
        while self.has_work():
            self.step()
        self._step_us = 0


def generation_config(request: Request, default_end_ids: tuple[int, ...]) -> Any:
    """The library's configuration for a request. Greedy unless a temperature above zero or another sampling field is given."""
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = request.max_new_tokens
    end_ids = request.end_ids or default_end_ids
    config.eos_token_id = end_ids[0]
    config.stop_token_ids = {*end_ids, *request.stop_ids}
    config.apply_chat_template = False
    config.logprobs = 1 if request.log_probs else 0
    if request.guide is not None:
        # Compiled by us and given as a grammar only: a schema or regex that the library cannot compile breaks the pipeline for good.
        config.structured_output_config = openvino_genai.StructuredOutputConfig(grammar=compile_guide(request.guide))
    _apply_sampling(config, request.sampling)
    return config


def _apply_sampling(config: Any, sampling: Sampling) -> None:
    config.do_sample = not sampling.is_greedy
    fields = _PENALTIES if not config.do_sample else _PENALTIES + _RANDOM
    for theirs, ours in fields:
        value = getattr(sampling, ours)
        if value is not None and (value or ours != "top_k"):  # top-k 0 is "no limit", which is the library's default
            setattr(config, theirs, value)
    if config.do_sample and sampling.seed is None:
        # The library's default seed is fixed; two callers would get the same "random" answer.
        config.rng_seed = time.monotonic_ns() & 0x7FFFFFFF


_PENALTIES = (
    ("repetition_penalty", "repetition_penalty"),
    ("presence_penalty", "presence_penalty"),
    ("frequency_penalty", "frequency_penalty"),
    ("min_new_tokens", "min_tokens"),
)
_RANDOM = (
    ("temperature", "temperature"),
    ("top_k", "top_k"),
    ("top_p", "top_p"),
    ("min_p", "min_p"),
    ("rng_seed", "seed"),
)

_FINISH = {
    openvino_genai.GenerationFinishReason.NONE: Finish.RUNNING,
    openvino_genai.GenerationFinishReason.STOP: Finish.END_ID,
    openvino_genai.GenerationFinishReason.LENGTH: Finish.LENGTH,
}


def load_pipeline(options: EngineOptions) -> Any:
    """A ContinuousBatchingPipeline on a prepared folder."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.num_kv_blocks = options.kv_blocks
    scheduler.max_num_batched_tokens = options.max_num_batched_tokens
    scheduler.max_num_seqs = options.max_num_seqs
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = options.enable_kv_cache_reuse
    return openvino_genai.ContinuousBatchingPipeline(str(options.model_dir), scheduler, "CPU", PROFILES[options.profile])


def _timing(sequence: _Sequence, now: int) -> Timing:
    first = sequence.first_token or now
    return Timing(
        arrived_ns=sequence.arrived_ns,
        queue_ns=sequence.scheduled - sequence.submitted,
        prefill_ns=first - sequence.scheduled,
        decode_ns=now - first,
    )

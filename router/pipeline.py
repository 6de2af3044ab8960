"""One turn, from the caller to a worker and back. Read this first.

A transport (gRPC, later HTTP) translates and calls `run`; everything that happens to a turn happens here, in order, one line per policy.
Tokens do not pass through this function: the worker's link feeds them to the turn, which puts events into the caller's sink.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from router.answer import Answer
from router.checks import check_messages, check_turn, fit_output
from router.config import Limits
from router.errors import TidegateError, describe_fault, internal
from router.model import Call, Failed, GenerationRequest, Message, Sink, Started, TurnRequest
from router.models import Model, Models
from router.routing.workers import Workers
from router.telemetry import Metrics, Tracing, trace_headers
from router.turn import Turn
from router.upstream.worker import Worker

log = logging.getLogger("tidegate.pipeline")


class Pipeline:
    """Runs turns."""

    def __init__(self, models: Models, workers: Workers, limits: Limits, tracing: Tracing, metrics: Metrics) -> None:
        self._models = models
        self._workers = workers
        self._limits = limits
        self._tracing = tracing
        self._metrics = metrics

    async def run(self, call: Call, request: TurnRequest, sink: Sink) -> None:
        """Runs one turn to its terminal event, which is in the sink when this returns.

        Being cancelled ends the turn as cancelled; cancelled with a TidegateError as its message, it ends as failed with that.
        """
        try:
            model = self._models.find(request.model)
        except TidegateError as error:
            sink([Failed(error)])
            return
        with self._tracing.turn(call.trace_headers, model.name) as span:
            answer = Answer(sink, model.name, self._metrics, span)
            try:
                await self._answer(request, model, answer)
            except TidegateError as error:
                answer.fail(error)
            except asyncio.CancelledError as cancelled:
                answer.cancel(cancelled)
                raise
            except Exception as error:
                log.error("turn failed; request %s: %s", call.request_id, describe_fault(error))
                answer.fail(internal())
            finally:
                answer.close()

    async def _answer(self, request: TurnRequest, model: Model, answer: Answer) -> None:
        check_turn(request, self._limits)
        with answer.span.stage("tokenize"):
            prompt = await model.encode(request.messages)
        worker = self._workers.choose(model.name)
        most = fit_output(request.max_output_tokens, model.default_output_tokens, len(prompt), _room(model, worker))
        turn = Turn(model.tokenizer.decoder(), request.stop, len(prompt), logprobs=request.logprobs)
        answer.start(turn, Started(model.name, worker.address, len(prompt), most))
        with answer.span.stage("generate") as stage:
            await answer.generate(worker, _ask_worker(request, prompt, most, trace_headers(stage)))

    async def count_tokens(self, model_name: str, messages: Sequence[Message]) -> tuple[int, int]:
        """Tokens of the rendered prompt, and tokens the model can hold. Raises CallerError."""
        model = self._models.find(model_name)
        check_messages(messages, self._limits)
        return len(await model.encode(messages)), model.tokenizer.context

    def check_model(self, name: str) -> str:
        """The name of the model that `name` (may be empty) stands for. Raises CallerError MODEL_UNKNOWN."""
        return self._models.find(name).name


def _ask_worker(request: TurnRequest, prompt: Sequence[int], most: int, trace: dict[str, str]) -> GenerationRequest:
    return GenerationRequest(
        prompt=prompt,
        max_new_tokens=most,
        sampling=request.sampling,
        min_new_tokens=None if request.min_output_tokens is None else min(request.min_output_tokens, most),
        guide=request.guide,
        log_probs=request.logprobs,
        trace_headers=trace,
    )


def _room(model: Model, worker: Worker) -> int:
    """Tokens that prompt and answer may have together: the model's context, and what the worker's KV cache holds."""
    description = worker.description
    assert description is not None, "a chosen worker is up"
    return min(model.tokenizer.context, description.context_tokens, description.pool_tokens)

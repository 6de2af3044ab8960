"""One turn, from the caller to a worker and back. Read this first.

A transport (gRPC, HTTP) translates and calls `run`; everything that happens to a turn happens here, in order, one line per policy. Tokens
do not pass through this function: the worker's link feeds them to the turn, which puts events into the caller's sink.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from router.admission.entry import Entry
from router.answer import Answer
from router.auth.authenticate import Authenticator
from router.auth.principal import Principal
from router.checks import check_prompt, check_turn, fit_output
from router.config import Limits
from router.errors import TidegateError, describe_fault, internal
from router.journey import Journey
from router.model import Call, Failed, GenerationRequest, Guide, Sampling, Sink, Started, TurnRequest
from router.models import Model, Models
from router.pool import Pool
from router.routing.chain import Chain
from router.routing.route import Need, Route
from router.spending import Charge, Spending
from router.telemetry import Metrics, Tracing, trace_headers
from router.text.tools import offer_tools

log = logging.getLogger("tidegate.pipeline")


class Pipeline:
    """Runs turns."""

    def __init__(
        self,
        *,
        models: Models,
        pools: Mapping[str, Pool],
        authenticator: Authenticator,
        spending: Spending,
        limits: Limits,
        tracing: Tracing,
        metrics: Metrics,
    ) -> None:
        """`pools` are by model name; their queues' clock is `time.monotonic`."""
        self._models = models
        self._pools = pools
        self._authenticator = authenticator
        self._spending = spending
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
                await self._answer(call, request, model, answer)
            except TidegateError as error:
                answer.fail(error)
            except asyncio.CancelledError as cancelled:
                answer.cancel(cancelled)
                raise
            except Exception as error:
                log.error("turn failed; request %s: %s", call.request_id, describe_fault(error))
                answer.fail(internal())
            finally:
                await answer.close()

    async def _answer(self, call: Call, request: TurnRequest, model: Model, answer: Answer) -> None:
        who = await self._identify(call, model)
        check_turn(request, self._limits)
        offer = offer_tools(request)
        with answer.span.stage("tokenize"):
            prompt = await model.read_prompt(request, offer)
        pool = self._pools[model.name]
        room = min(model.tokenizer.context, pool.fleet.measure_room())
        most = fit_output(request.max_output_tokens, model.default_output_tokens, len(prompt), room)
        charge = await self._spending.open(who, model.name, len(prompt), most)
        answer.owe(charge)
        need = Need(who.tenant, Chain(prompt, who.tenant), charge.expected_tokens)
        pool.fleet.admit(need)
        async with AsyncExitStack() as held:
            with answer.span.stage("queue"):
                entry = _describe_entry(call, request, charge, need, pool.fleet.expect_cached(need.chain))
                slot = await held.enter_async_context(pool.queue.place(entry, answer.wait))
            answer.prepare(model.open_turn(request, offer, len(prompt)), slot)
            with answer.span.stage("generate") as stage:
                guide, trace = model.guide(offer) or request.guide, trace_headers(stage)
                asked = _ask_worker(request, prompt, most, guide=guide, trace=trace, account=charge.account)
                await Journey(pool.fleet, need, asked, answer).run(partial(_describe_start, model.name, most, charge))
            pool.queue.observe(answer.timing)

    async def count_tokens(self, call: Call, request: TurnRequest) -> tuple[int, int]:
        """Tokens of the rendered prompt, and tokens the model can hold. Raises CallerError."""
        model = self._models.find(request.model)
        await self._identify(call, model)
        check_prompt(request, self._limits)
        return len(await model.encode(request.messages, offer_tools(request))), model.tokenizer.context

    def check_model(self, name: str) -> str:
        """The name of the model that `name` (may be empty) stands for. Raises CallerError MODEL_UNKNOWN."""
        return self._models.find(name).name

    async def _identify(self, call: Call, model: Model) -> Principal:
        """Who is calling, as of now: a key may have been revoked since its stream was opened."""
        who = await self._authenticator.identify(call.credentials.headers, call.credentials.peer)
        who.require_model(model.name)
        return who


def _describe_entry(call: Call, request: TurnRequest, charge: Charge, need: Need, cached_tokens: int) -> Entry:
    return Entry(
        need.tenant,
        len(need.chain),
        need.output_tokens,
        charge.weight,
        request.priority,
        cached_tokens,
        call.deadline_s if request.max_wait_s is None else time.monotonic() + request.max_wait_s,
    )


def _describe_start(model: str, most: int, charge: Charge, route: Route) -> Started:
    prompt_tokens = len(route.need.chain)
    return Started(model, route.worker.address, prompt_tokens, most, charge.turn, charge.allowances, route.cached_tokens)


def _ask_worker(
    request: TurnRequest, prompt: Sequence[int], most: int, *, guide: Guide | None, trace: dict[str, str], account: str
) -> GenerationRequest:
    return GenerationRequest(
        prompt=prompt,
        max_new_tokens=most,
        sampling=_fix_seed(request.sampling) if guide else request.sampling,
        min_new_tokens=None if request.min_output_tokens is None else min(request.min_output_tokens, most),
        guide=guide,
        log_probs=request.logprobs,
        trace_headers=trace,
        account=account,
    )


def _fix_seed(sampling: Sampling) -> Sampling:
    """With a seed, so that another worker can make the same answer again; greedy answers need none."""
    if sampling in (Sampling(), Sampling(temperature=0.0)) or sampling.seed is not None:
        return sampling
    return replace(sampling, seed=secrets.randbits(31))

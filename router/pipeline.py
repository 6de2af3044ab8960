"""One turn, from the caller to a worker and back. Read this first.

A transport (gRPC, HTTP) translates and calls `run`; everything that happens to a turn happens here, in order, one line per policy. Tokens
do not pass through this function: the worker's link feeds them to the turn, which puts events into the caller's sink.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from router.answer import Answer
from router.auth.authenticate import Authenticator
from router.auth.principal import Principal
from router.checks import check_prompt, check_turn
from router.choice import Choice, Chooser, Wish
from router.config import Limits
from router.errors import TidegateError, describe_fault, internal
from router.journey import Journey
from router.model import Call, Failed, GenerationRequest, Guide, Sampling, Sink, Started, TurnRequest
from router.models import Asked, Models
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
        chooser: Chooser,
        authenticator: Authenticator,
        spending: Spending,
        limits: Limits,
        salt: Callable[[str], str],
        tracing: Tracing,
        metrics: Metrics,
    ) -> None:
        """`salt` gives what stands for a tenant at workers, which do not learn who it is."""
        self._models = models
        self._chooser = chooser
        self._authenticator = authenticator
        self._spending = spending
        self._limits = limits
        self._salt = salt
        self._tracing = tracing
        self._metrics = metrics

    async def run(self, call: Call, request: TurnRequest, sink: Sink) -> None:
        """Runs one turn to its terminal event, which is in the sink when this returns.

        Being cancelled ends the turn as cancelled; cancelled with a TidegateError as its message, it ends as failed with that.
        """
        try:
            asked = self._models.find(request.model)
        except TidegateError as error:
            sink([Failed(error)])
            return
        with self._tracing.turn(call.trace_headers, asked.name) as span:
            answer = Answer(sink, asked.name, self._metrics, span, call.request_id)
            try:
                await self._answer(call, request, asked, answer)
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

    async def _answer(self, call: Call, request: TurnRequest, asked: Asked, answer: Answer) -> None:
        who = await self._identify(call, asked)
        check_turn(request, self._limits)
        offer = offer_tools(request)
        with answer.span.stage("tokenize"):
            choice = await self._chooser.choose(asked, Wish(who, call, request, offer))
        model, pool = choice.model, choice.pool
        answer.settle(model.name, choice.degraded)
        charge = await self._spending.open(who, asked.name, model.name, len(choice.chain), choice.most)
        answer.owe(charge)
        need = Need(who.tenant, choice.chain, charge.expected_tokens)
        pool.fleet.admit(need)
        async with AsyncExitStack() as held:
            with answer.span.stage("queue"):
                entry = replace(choice.entry, output_tokens=need.output_tokens, weight=charge.weight)
                slot = await held.enter_async_context(pool.queue.place(entry, answer.wait))
            answer.prepare(model.open_turn(request, offer, len(need.chain)), slot)
            with answer.span.stage("generate") as stage:
                guide, trace = model.guide(offer, request.guide), trace_headers(stage)
                wanted = _ask_worker(request, choice, guide=guide, trace=trace, account=charge.account, salt=self._salt(who.tenant))
                await Journey(pool.fleet, need, wanted, answer).run(partial(_describe_start, choice, charge))
            pool.queue.observe(answer.timing)

    async def count_tokens(self, call: Call, request: TurnRequest) -> tuple[int, int]:
        """Tokens of the rendered prompt, and tokens the model can hold. Raises CallerError."""
        asked = self._models.find(request.model)
        who = await self._identify(call, asked)
        check_prompt(request, self._limits)
        model = self._chooser.pick(asked, who, request)
        return len(await model.encode(request.messages, offer_tools(request))), model.tokenizer.context

    def check_model(self, name: str) -> str:
        """The name of the model or alias that `name` (may be empty) stands for. Raises CallerError MODEL_UNKNOWN."""
        return self._models.find(name).name

    async def _identify(self, call: Call, asked: Asked) -> Principal:
        """Who is calling, as of now: a key may have been revoked since its stream was opened."""
        who = await self._authenticator.identify(call.credentials.headers, call.credentials.peer, call.request_id)
        who.require_model(*(model.name for model in asked.models))
        return who


def _describe_start(choice: Choice, charge: Charge, route: Route) -> Started:
    worker, prompt_tokens = route.worker.address, len(choice.chain)
    return Started(choice.model.name, worker, prompt_tokens, choice.most, charge.turn, charge.allowances, route.cached_tokens)


def _ask_worker(
    request: TurnRequest, choice: Choice, *, guide: Guide | None, trace: dict[str, str], account: str, salt: str
) -> GenerationRequest:
    return GenerationRequest(
        prompt=choice.prompt,
        max_new_tokens=choice.most,
        sampling=_fix_seed(request.sampling) if guide else request.sampling,
        min_new_tokens=None if request.min_output_tokens is None else min(request.min_output_tokens, choice.most),
        guide=guide,
        log_probs=request.logprobs,
        trace_headers=trace,
        account=account,
        cache_salt=salt,
    )


def _fix_seed(sampling: Sampling) -> Sampling:
    """With a seed, so that another worker can make the same answer again; greedy answers need none."""
    if sampling in (Sampling(), Sampling(temperature=0.0)) or sampling.seed is not None:
        return sampling
    return replace(sampling, seed=secrets.randbits(31))

"""Which model answers a turn: the cascade chooses one of an alias's, and its pool's ladder says whether a smaller one must do.

Nothing is booked yet and the caller has heard nothing. So this is where an alias passes on to its next larger model, when the one that the
cascade has chosen would not serve the turn, and where a turn goes down to a smaller one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from router.admission.entry import Entry, Outlook
from router.auth.principal import Principal
from router.checks import fit_output
from router.degradation.cascade import Predictor, order_models
from router.degradation.ladder import SATURATED, Prospect, Rung
from router.errors import Code, TidegateError
from router.model import Call, Degraded, Priority, TurnRequest
from router.models import Asked, Model, Models
from router.pool import Pool
from router.routing.chain import Chain
from router.text.tools import Offer

_NOT_NOW = (Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE)
"""Errors that say nothing of the request: another model may serve it."""


class Consent(Protocol):
    """Who allows downgrades; router.quota.terms in production."""

    def may_downgrade(self, tenant: str) -> bool:
        """Whether a smaller model may answer in place of the one that a tenant asks for."""
        ...


@dataclass(frozen=True, slots=True)
class Wish:
    """A turn that looks for a model: whose it is, what it asks, and the tools that it offers."""

    who: Principal
    call: Call
    request: TurnRequest
    offer: Offer | None


@dataclass(frozen=True, slots=True)
class Choice:
    """A model that would take a turn: the prompt in its tokens, those hashed, the most tokens of the answer, and what its queue foresees.

    `entry` is what the queue is told; the length of the answer and the tenant's weight are not known yet. `degraded` is set when the model
    is a smaller one than the one asked for.
    """

    model: Model
    pool: Pool
    prompt: Sequence[int]
    chain: Chain
    most: int
    entry: Entry
    outlook: Outlook
    degraded: Degraded | None = None


class Chooser:
    """Chooses models for turns."""

    def __init__(
        self, models: Models, pools: Mapping[str, Pool], consent: Consent, predictor: Predictor, clock: Callable[[], float]
    ) -> None:
        """`pools` are by model name; `clock` is that of their queues."""
        self._models = models
        self._pools = pools
        self._consent = consent
        self._predictor = predictor
        self._clock = clock

    def pick(self, asked: Asked, who: Principal, request: TurnRequest) -> Model:
        """The model that is tried first."""
        return _rank(asked, who, self._judge(asked, request))[0]

    async def choose(self, asked: Asked, wish: Wish) -> Choice:
        """The model that answers. Raises what the largest that was tried would say, if none takes the turn."""
        hardness = self._judge(asked, wish.request)
        *smaller, largest = _rank(asked, wish.who, hardness)
        for model in smaller:
            with suppress(TidegateError):
                return await self._settle(model, hardness, wish)
        return await self._settle(largest, hardness, wish)

    def _judge(self, asked: Asked, request: TurnRequest) -> float:
        """How hard the request is, if anything depends on it."""
        matters = len(asked.models) > 1 or asked.models[0].smaller is not None
        return self._predictor.judge(request) if matters else 0.0

    async def _settle(self, model: Model, hardness: float, wish: Wish) -> Choice:
        """This model, or one below it."""
        here = await self._look(model, wish)
        ladder, prospect, lower = self._pools[model.name].ladder, _prospect(here), None
        if ladder.needs_lower(prospect, hardness, self._clock()):
            lower = await self._find_lower(model, prospect, wish)
        rung = ladder.decide(prospect, hardness, self._clock(), has_lower=lower is not None)
        if lower is not None and rung is Rung.DOWNGRADE:
            reason = here.reason if isinstance(here, TidegateError) else SATURATED
            return replace(lower, degraded=Degraded(model.name, lower.model.name, reason))
        if isinstance(here, TidegateError):
            raise here
        return here

    def _list_below(self, model: Model, wish: Wish) -> Sequence[Model]:
        """Smaller models that may answer: none for a batch turn, which nobody waits for, nor for a text or ids, made for one model."""
        is_bound = wish.request.priority is Priority.BATCH or not wish.request.messages
        if is_bound or not self._consent.may_downgrade(wish.who.tenant):
            return ()
        return [it for it in self._models.list_below(model) if wish.who.may_use(it.name)]

    async def _find_lower(self, model: Model, above: Prospect, wish: Wish) -> Choice | None:
        """The largest of the smaller models that takes the turn."""
        slo_s = self._pools[model.name].ladder.slo_s
        for smaller in self._list_below(model, wish):
            try:
                found = await self._look(smaller, wish)
            except TidegateError:  # it does not fit there, which does not concern the caller
                continue
            if isinstance(found, Choice) and found.pool.ladder.takes(found.outlook, above, slo_s):
                return found
        return None

    async def _look(self, model: Model, wish: Wish) -> Choice | TidegateError:
        """What the turn would meet with a model; an error where it would not be served now. Raises CallerError where it never would."""
        prompt = await model.read_prompt(wish.request, wish.offer)
        pool = self._pools[model.name]
        try:
            room = min(model.tokenizer.context, pool.fleet.measure_room())
            most = fit_output(wish.request.max_output_tokens, model.default_output_tokens, len(prompt), room)
            chain = Chain(prompt, wish.who.tenant)
            entry = self._describe_entry(wish, chain, most, pool.fleet.expect_cached(chain))
            return Choice(model, pool, prompt, chain, most, entry, pool.queue.foresee(entry))
        except TidegateError as error:
            if error.code in _NOT_NOW:
                return error
            raise

    def _describe_entry(self, wish: Wish, chain: Chain, most: int, cached_tokens: int) -> Entry:
        max_wait_s = wish.request.max_wait_s
        deadline_s = wish.call.deadline_s if max_wait_s is None else self._clock() + max_wait_s
        return Entry(wish.who.tenant, len(chain), most, 1.0, wish.request.priority, cached_tokens, deadline_s)


def _rank(asked: Asked, who: Principal, hardness: float) -> Sequence[Model]:
    """The models to try, best first; the caller may use at least one."""
    return order_models([model for model in asked.models if who.may_use(model.name)], hardness)


def _prospect(found: Choice | TidegateError) -> Prospect:
    return found.outlook if isinstance(found, Choice) else found

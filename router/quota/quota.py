"""A turn's quota from reservation to settlement.

    async with await quota.reserve(subjects, ask) as hold:
        ...                                   # for each frame, without awaiting:
        hold.count(new_tokens)
        ...                                   # when hold.uncovered() says so, before more is produced:
        if not await hold.extend(SLICE_TOKENS):
            ...                               # end with finish reason `budget`

Prompt tokens are exact and the answer's are guessed from earlier ones, so most turns reserve once and settle once. Whatever ends the turn,
leaving the context settles what was counted: the one door out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from router.errors import CallerError, Code, Violation
from router.model import Allowance
from router.quota.estimate import OutputEstimator
from router.quota.limits import FREE, Amounts, Bounds, Price, Subject, SubjectKind, join_bounds
from router.quota.store import Granted, Refused, Store, StoreAway

SLICE_TOKENS = 128
"""Output tokens to ask for when the reservation runs out."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A turn to reserve for. The id is unique to the turn: reserving twice with the same one books once."""

    turn_id: str
    tenant: str
    model: str
    input_tokens: int
    max_output_tokens: int
    price: Price = FREE


class QuotaExceeded(CallerError):
    """A limit refuses the turn, which has eaten nothing. `retry_after_s` None: it is more than the limit ever allows."""

    def __init__(self, subject: SubjectKind, limit_name: str, limit: int, retry_after_s: float | None) -> None:
        text = f"{limit_name} of the {subject.value} " + ("allows no such turn" if retry_after_s is None else "is used up")
        violation = Violation(subject.value, text)
        super().__init__(Code.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", text, violations=(violation,), retry_after_s=retry_after_s)
        self.allowance = Allowance(subject.value, limit_name, limit, 0)


class Quota(Protocol):
    """Who may start a turn."""

    async def reserve(self, subjects: Sequence[Subject], ask: Ask) -> Hold:
        """Books the turn under all limits of all subjects, or under none. Raises QuotaExceeded and RouterError QUOTA_UNAVAILABLE."""


class Hold:
    """What one turn has booked. Settles once: by `settle`, or on leaving its context with what was counted."""

    __slots__ = ("_ask", "_bounds", "_cached", "_estimator", "_left", "_reserved", "_settled", "_store", "produced")

    def __init__(self, store: Store, estimator: OutputEstimator, ask: Ask, bounds: Bounds, output_tokens: int) -> None:
        self._store = store
        self._estimator = estimator
        self._ask = ask
        self._bounds = bounds
        self._reserved = output_tokens
        self.produced = 0
        """Output tokens that the engine has made."""
        self._cached = 0
        self._settled = False
        self._left: tuple[int, ...] = ()

    async def __aenter__(self) -> Hold:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.settle(self.read_counted())

    def read_counted(self) -> Amounts:
        """What the turn has used so far, by `count`."""
        return self._amounts(self.produced)

    @property
    def reserved_output_tokens(self) -> int:
        """Output tokens booked so far."""
        return self._reserved

    def count(self, output_tokens: int) -> int:
        """The engine has produced this many more; gives how many in all."""
        self.produced += output_tokens
        return self.produced

    def cached(self, input_tokens: int) -> None:
        """This many of the prompt's tokens were in the worker's cache."""
        self._cached = input_tokens

    def uncovered(self, ahead: int = 0) -> bool:
        """Whether the reservation is used up, or will be `ahead` tokens from now."""
        ends = self.produced + ahead
        return ends >= self._reserved and self._reserved < self._ask.max_output_tokens

    async def extend(self, output_tokens: int = SLICE_TOKENS) -> bool:
        """Books more output, never beyond the turn's own maximum. False: a limit refuses, and the turn must end. A store that is away
        refuses nothing: what runs may finish, and is settled later."""
        more = min(output_tokens, self._ask.max_output_tokens - self._reserved)
        if self._settled:
            return False
        if more <= 0:
            return True
        costs = self._amounts(self._reserved + more).micros - self._amounts(self._reserved).micros
        self._reserved += more
        try:
            decision = await self._store.extend(self._ask.turn_id, self._bounds, Amounts(0, 0, more, costs))
        except StoreAway:
            return True
        if isinstance(decision, Refused):
            self._reserved -= more
            return False
        self.take(decision)
        return True

    async def settle(self, actual: Amounts) -> None:
        """Makes what is booked come to `actual`. Only the first call counts."""
        if not self._settled:
            self._settled = True
            self._estimator.learn(self._ask.tenant, self._ask.model, actual.output_tokens)
            await self._store.settle(self._ask.turn_id, self._bounds, actual)

    def remaining(self) -> tuple[Allowance, ...]:
        """What was left of each limit at the last decision, this turn's reservation taken off. Empty when the store could not tell."""
        pairs = zip(self._bounds, self._left, strict=False)
        return tuple(Allowance(bound.kind.value, bound.rule.name, bound.limit, left) for bound, left in pairs)

    def take(self, granted: Granted) -> None:
        """The figures of a decision."""
        self._left = granted.left or self._left

    def _amounts(self, output_tokens: int) -> Amounts:
        return _price(self._ask, output_tokens, self._cached)


class StoredQuota:
    """Implements Quota on a store, with answer lengths learned in this process."""

    def __init__(self, store: Store, estimator: OutputEstimator) -> None:
        self._store = store
        self._estimator = estimator

    async def reserve(self, subjects: Sequence[Subject], ask: Ask) -> Hold:
        """See Quota."""
        bounds = join_bounds(tuple(subjects))
        output_tokens = self._guess_output(bounds, ask)
        hold = Hold(self._store, self._estimator, ask, bounds, output_tokens)
        try:
            decision = await self._store.reserve(ask.turn_id, bounds, _price(ask, output_tokens), hold.read_counted)
        except asyncio.CancelledError:
            # The store may have booked it, and nobody else knows.
            await self._store.settle(ask.turn_id, bounds, Amounts())
            raise
        if isinstance(decision, Refused):
            wait_s = None if decision.wait_ms is None else decision.wait_ms / 1000
            bound = decision.bound
            raise QuotaExceeded(bound.kind, bound.rule.name, bound.limit, wait_s)
        hold.take(decision)
        return hold

    def _guess_output(self, bounds: Bounds, ask: Ask) -> int:
        # A guess above a limit's whole size would never be granted, although the turn itself might fit. One token is the least.
        guess = min(self._estimator.estimate(ask.tenant, ask.model), ask.max_output_tokens)
        least = bounds.least
        if "output_tokens" in least:
            guess = min(guess, least["output_tokens"])
        if "tokens" in least:
            guess = min(guess, least["tokens"] - ask.input_tokens)
        if "micros" in least and (affordable := ask.price.affordable_output(least["micros"], ask.input_tokens)) is not None:
            guess = min(guess, affordable)
        return max(1, guess)


def _price(ask: Ask, output_tokens: int, cached_tokens: int = 0) -> Amounts:
    return Amounts(1, ask.input_tokens, output_tokens, ask.price.cost(ask.input_tokens, output_tokens, cached_tokens))

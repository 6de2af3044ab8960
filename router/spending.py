"""What a turn costs, and to whom: the quota that it is booked under, and the ledger that remembers it.

A turn is charged what its worker produced, whether its caller heard all of it or left. One that never reached a worker costs nothing and
leaves no entry; one that failed before its first token costs nothing and leaves an entry that says so.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from router.admission.queue import Slot
from router.auth.keys import KeyHash
from router.auth.principal import Principal
from router.errors import price_missing
from router.ledger.entry import UsageEntry, read_line
from router.ledger.running import LOST
from router.model import Allowance
from router.quota.limits import FREE, Amounts
from router.quota.quota import SLICE_TOKENS, Ask, Hold, Quota
from router.quota.terms import Terms
from router.upstream.link import Receipt

LOOK_EVERY_TOKENS = 16
"""How often a turn's charge looks whether more must be booked, and tells the queue what was made: no step needs either. So much may a
tenant's counter in the queue lag behind for each turn that outgrows its estimate."""

AHEAD_TOKENS = 32 + LOOK_EVERY_TOKENS
"""How long before a reservation is used up more is asked for: the answer of a store that is not far should come within the 32 steps that
are left of them after a look."""

_DURABLE_S = 1.0

log = logging.getLogger("tidegate.spending")


class Book(Protocol):
    """Where usage is written; router.ledger.ledger in production, and described there."""

    def require_room(self) -> None: ...
    def begin(self, turn: str, describe: Callable[[], UsageEntry]) -> None: ...
    def recover(self, entry: UsageEntry) -> None: ...
    def record(self, entry: UsageEntry) -> None: ...
    async def durable(self, within_s: float | None = None) -> None: ...


class Spending:
    """Opens charges."""

    def __init__(self, terms: Terms, quota: Quota, ledger: Book, keys: KeyHash, *, router: str, now: Callable[[], float]) -> None:
        """`keys` signs what workers keep for us; `router` is this router's name in the ledger; `now` gives seconds since 1970."""
        self._terms = terms
        self._keys = keys
        self._quota = quota
        self._ledger = ledger
        self._router = router
        self._now = now

    async def open(self, who: Principal, asked: str, model: str, prompt_tokens: int, most: int) -> Charge:
        """Books a turn of at most `most` output tokens on the model that serves, whatever name was asked for.

        Raises CallerError QUOTA_EXCEEDED, PRICE_MISSING; RouterError when it could not be recorded.
        """
        self._ledger.require_room()
        turn, now = uuid.uuid4().hex, self._now()
        subjects = self._terms.find_subjects(who.tenant, who.user, who.key_id, model)
        price = self._terms.find_price(model)
        if price is None and any(subject.limits.micros_per_month is not None for subject in subjects):
            raise price_missing(model)  # else the limit would never be reached
        hold = await self._quota.reserve(subjects, Ask(turn, who.tenant, model, prompt_tokens, most, price or FREE))
        entry = UsageEntry(turn, who.tenant, who.user, who.key_id, asked, model, prompt_tokens, 0, 0, "", now, now, self._router)
        account = write_account(entry, most, self._keys)
        return Charge(hold, self._ledger, entry, self._terms.find_weight(who.tenant), self._now, account=account)

    def take_receipts(self, receipts: Sequence[Receipt]) -> None:
        """Workers tell what they made for turns that a router lost: an earlier life of this one, or another that does not come back.

        What no router wrote is not believed: whoever reaches a worker's port could bill anybody.
        """
        for receipt in receipts:
            try:
                entry = read_account(receipt, self._keys, self._now())
            except ValueError as fault:
                log.error("a worker's receipt does not count: %s", fault)
            else:
                self._ledger.recover(entry)


class Charge:
    """One turn's. Close it, whatever happens to the turn; only the first time counts.

    A step only adds its tokens up, in the hold, where all who want the number read it.
    """

    __slots__ = (
        "_cached", "_entry", "_extension", "_hold", "_ledger", "_look_at", "_now", "_refused", "_slot", "_told",
        "account", "turn", "weight",
    )  # fmt: skip

    def __init__(self, hold: Hold, ledger: Book, entry: UsageEntry, weight: float, now: Callable[[], float], *, account: str) -> None:
        """`account` is the turn's entry before it ran, for the worker's receipt."""
        self.account = account
        self.turn = entry.turn
        self.weight = weight
        self._hold = hold
        self._ledger = ledger
        self._entry = entry
        self._now = now
        self._slot: Slot | None = None
        self._look_at = self._told = self._cached = 0
        self._extension: asyncio.Task[None] | None = None
        self._refused = False

    @property
    def allowances(self) -> tuple[Allowance, ...]:
        """What the caller's limits leave."""
        return self._hold.remaining()

    @property
    def expected_tokens(self) -> int:
        """How long the answer will probably be."""
        return self._hold.reserved_output_tokens

    @property
    def tenant(self) -> str:
        """Whose turn it is."""
        return self._entry.tenant

    def begin(self, slot: Slot) -> None:
        """A worker takes the turn: from here on it costs, even if this router dies."""
        self._slot = slot
        self._ledger.begin(self.turn, self._describe)

    def count(self, tokens: int) -> bool:
        """The worker produced this many more, called once a step. False: the budget is spent and the turn must end."""
        return self._hold.count(tokens) < self._look_at or self._look()

    def catch_up(self) -> None:
        """Tells the queue what it was not told yet; before the slot is given back."""
        assert self._slot is not None, "begun before it is counted"
        produced = self._hold.produced
        self._slot.produced(produced - self._told)
        self._told = produced

    def cached(self, prompt_tokens: int) -> None:
        """The worker told how much of the prompt was in its cache."""
        assert self._slot is not None, "begun before it is counted"
        self._cached = prompt_tokens
        self._hold.cached(prompt_tokens)
        self._slot.cached(prompt_tokens)

    async def close(self, finish: str, *, failed: bool) -> None:
        """Settles. Returns when the entry would survive a crash; `finish` is how the ledger says that the turn ended."""
        if self._slot is None:
            await self._hold.settle(Amounts())
            return
        if failed and not self._hold.produced:
            self._entry, self._cached, used = replace(self._entry, prompt_tokens=0), 0, Amounts()
        else:
            used = self._hold.read_counted()
        self._slot = None
        self._ledger.record(replace(self._describe(), finish=finish))
        await self._hold.settle(used)
        await self._ledger.durable(_DURABLE_S)

    def _look(self) -> bool:
        """Every few tokens, and with the last one that is booked."""
        self.catch_up()
        hold = self._hold
        if hold.uncovered(AHEAD_TOKENS) and self._extension is None and not self._refused:
            self._extension = asyncio.create_task(self._extend())
        self._look_at = hold.produced + LOOK_EVERY_TOKENS
        if hold.reserved_output_tokens > hold.produced:
            self._look_at = min(self._look_at, hold.reserved_output_tokens)
        return not (self._refused and hold.uncovered())

    async def _extend(self) -> None:
        self._refused = not await self._hold.extend(SLICE_TOKENS)
        self._extension = None
        self._look_at = 0

    def _describe(self) -> UsageEntry:
        return replace(self._entry, cached_tokens=self._cached, completion_tokens=self._hold.produced, ended_at=self._now())


def write_account(entry: UsageEntry, most: int, keys: KeyHash) -> str:
    """What a worker keeps of a turn of at most `most` output tokens: signature, `most` and the turn's entry, with spaces between."""
    told = f"{most} {entry.to_line()}"
    return f"{keys.sign(told)} {told}"


def read_account(receipt: Receipt, keys: KeyHash, now: float) -> UsageEntry:
    """The entry of a turn whose router is gone: what its worker made, and no more than was asked for. Raises ValueError."""
    signature, _, told = receipt.account.partition(" ")
    if not keys.is_signed(told, signature):
        raise ValueError("no router with our pepper wrote it")
    most, _, line = told.partition(" ")
    made, entry = max(0, min(receipt.tokens, int(most))), read_line(line)
    prompt = entry.prompt_tokens if made else 0  # as for any turn that failed before its first token
    cached = max(0, min(receipt.cached_tokens, prompt))
    return replace(entry, prompt_tokens=prompt, cached_tokens=cached, completion_tokens=made, finish=LOST, ended_at=now)

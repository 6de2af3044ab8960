"""Counters in Redis, shared by all routers: one script is one decision, by the server's clock.

A running turn's hold has a lease that this router renews. When the router dies the lease ends, the turn's place is free, and any other
router brings what it had booked to what it had last counted. Settlements that do not get through are kept, up to a bound, and sent again;
a hold's id makes sending twice harmless. One that is lost beyond the bound ends as if its router had died.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType

from router.quota.limits import Amounts, Bound, Rule
from router.quota.scripts import Scripts, connect
from router.quota.store import Granted, Refused, StoreAway

_LUA = Path(__file__).parent / "lua"
_HOLD_TTL_S = 3_600
_PENDING = 10_000
_TICK_S = 0.25
_BATCH = 200
_GRANTED = 1
_REFUSED = 0


@dataclass(frozen=True, slots=True)
class _Running:
    bounds: str
    read_counted: Callable[[], Amounts]


@dataclass(frozen=True, slots=True)
class _Settlement:
    hold_id: str
    bounds: str
    actual: Amounts
    at_s: float


class RedisStore:
    """Implements Store, to be put behind FailClosed or FailOpen. An async context manager: entering raises StoreRefused when Redis cannot
    be used, leaving sends what is pending."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "tidegate:",
        deadline_s: float = 0.05,
        lease_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`deadline_s` bounds each decision; `lease_s` is how long a dead router's turns keep their places."""
        self._scripts = Scripts(connect(url, deadline_s), _LUA, deadline_s=deadline_s, clock=clock)
        self._prefix = prefix + "{quota}:"
        self._leases_key = f"{self._prefix}leases"
        self._lease_ms = int(lease_s * 1000)
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._pending: deque[_Settlement] = deque()
        self._settling: set[asyncio.Task[None]] = set()
        self._lost = 0
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> RedisStore:
        try:
            await self._scripts.load()
        except BaseException:
            await self._scripts.close()
            raise
        self._keeper = asyncio.create_task(self._keep(), name="quota keeper")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._keeper
        self._keeper.cancel()
        await asyncio.gather(self._keeper, *self._settling, return_exceptions=True)
        await self._send_pending()
        await self._scripts.close()

    @property
    def pending(self) -> int:
        """Settlements that wait for Redis."""
        return len(self._pending)

    @property
    def lost(self) -> int:
        """Settlements given up since the start."""
        return self._lost

    async def reserve(
        self, hold_id: str, bounds: Sequence[Bound], amounts: Amounts, read_counted: Callable[[], Amounts]
    ) -> Granted | Refused:
        """See Store."""
        running = _Running(self._encode(bounds), read_counted)
        counted = _dump(read_counted())
        args = (hold_id, running.bounds, _dump(amounts), counted, self._lease_ms, _HOLD_TTL_S * 1000)
        decision = _read_reply(await self._scripts.run("reserve", self._keys(hold_id), args), bounds)
        if isinstance(decision, Granted):
            self._running[hold_id] = running
        return decision

    async def extend(self, hold_id: str, bounds: Sequence[Bound], more: Amounts) -> Granted | Refused:
        """See Store. A hold that Redis has lost may go on: its settlement is charged whole."""
        running = self._running.get(hold_id)
        if not running:
            return Granted()
        args = (hold_id, running.bounds, _dump(more), _dump(running.read_counted()), self._lease_ms, _HOLD_TTL_S * 1000)
        return _read_reply(await self._scripts.run("extend", self._keys(hold_id), args), bounds)

    async def settle(self, hold_id: str, bounds: Sequence[Bound], actual: Amounts) -> None:
        """See Store. Returns when Redis has it or has missed its deadline; a caller that is cancelled does not stop it."""
        running = self._running.pop(hold_id, None)
        encoded = running.bounds if running else self._encode(bounds)
        task = asyncio.create_task(self._settle(_Settlement(hold_id, encoded, actual, self._clock())))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        await asyncio.shield(task)

    async def _settle(self, settlement: _Settlement) -> None:
        try:
            await self._send(settlement)
        except StoreAway:
            self._pending.append(settlement)
            if len(self._pending) > _PENDING:
                self._pending.popleft()
                self._lost += 1

    async def _send(self, settlement: _Settlement) -> None:
        args = (settlement.hold_id, settlement.bounds, _dump(settlement.actual), _HOLD_TTL_S * 1000)
        await self._scripts.run("settle", self._keys(settlement.hold_id), args)

    async def _keep(self) -> None:
        renew_at = self._clock()
        while True:
            await asyncio.sleep(_TICK_S)
            await self._send_pending()
            if self._clock() >= renew_at:
                renew_at = self._clock() + self._lease_ms / 3000
                await self._renew()

    async def _send_pending(self) -> None:
        while self._pending:
            settlement = self._pending[0]
            try:
                # The mark that it was settled before lives no longer than a hold: after that, sending twice would charge twice.
                if self._clock() - settlement.at_s < _HOLD_TTL_S / 2:
                    await self._send(settlement)
                else:
                    self._lost += 1
            except StoreAway:
                return
            if self._pending and self._pending[0] is settlement:
                self._pending.popleft()

    async def _renew(self) -> None:
        running = list(self._running.items())
        keys = (f"{self._prefix}hold:", self._leases_key)
        try:
            for start in range(0, len(running), _BATCH):
                counts = [text for hold_id, hold in running[start : start + _BATCH] for text in (hold_id, _dump(hold.read_counted()))]
                await self._scripts.run("renew", keys, (self._lease_ms, _HOLD_TTL_S * 1000, *counts))
            await self._scripts.run("reap", keys, (_BATCH,))
        except StoreAway:
            return

    def _keys(self, hold_id: str) -> tuple[str, str]:
        return f"{self._prefix}hold:{hold_id}", self._leases_key

    def _encode(self, bounds: Sequence[Bound]) -> str:
        return f"[{','.join(_describe(self._prefix, bound.key, bound.rule, bound.limit) for bound in bounds)}]"


@lru_cache(maxsize=16_384)
def _describe(prefix: str, key: str, rule: Rule, limit: int) -> str:
    slots = {"slot_ms": rule.window.slot_ms, "slots": rule.window.slots} if rule.window else {}
    return json.dumps({"key": prefix + key, "metric": rule.metric, "limit": limit, **slots})


def _dump(amounts: Amounts) -> str:
    return str(amounts.as_list())


def _read_reply(reply: Sequence[int], bounds: Sequence[Bound]) -> Granted | Refused:
    if reply[0] == _REFUSED:
        _, place, wait_ms = reply
        return Refused(bounds[place - 1], None if wait_ms < 0 else wait_ms)
    return Granted(tuple(reply[1:])) if reply[0] == _GRANTED else Granted()

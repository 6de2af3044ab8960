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

from router.quota.limits import CALLERS, Amounts, Bound, Bounds
from router.quota.store import Granted, Refused, StoreAway
from router.redis.scripts import RedisAway, Scripts

_LUA = Path(__file__).parent / "lua"
_HOLD_TTL_S = 3_600
_PENDING = 10_000
_TICK_S = 0.25
_BATCH = 200
_GRANTED = 1
_REFUSED = 0


@dataclass(frozen=True, slots=True)
class _Settlement:
    hold_id: str
    bounds: Bounds
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
        self._scripts = Scripts(url, _LUA, deadline_s=deadline_s, clock=clock)
        self._prefix = prefix + "{quota}:"
        self._leases_key = f"{self._prefix}leases"
        self._lease_ms = int(lease_s * 1000)
        self._clock = clock
        self._running: dict[str, Callable[[], Amounts]] = {}
        """What running turns have used, by their holds."""
        self._pending: deque[_Settlement] = deque()
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
        await asyncio.gather(self._keeper, return_exceptions=True)
        await self._send_pending()
        await self._scripts.close()

    @property
    def is_away(self) -> bool:
        """Whether Redis did not answer last."""
        return self._scripts.is_away

    @property
    def pending(self) -> int:
        """Settlements that wait for Redis."""
        return len(self._pending)

    @property
    def lost(self) -> int:
        """Settlements given up since the start."""
        return self._lost

    async def reserve(self, hold_id: str, bounds: Bounds, amounts: Amounts, read_counted: Callable[[], Amounts]) -> Granted | Refused:
        """See Store."""
        decision = await self._decide("reserve", hold_id, bounds, amounts, read_counted())
        if isinstance(decision, Granted):
            self._running[hold_id] = read_counted
        return decision

    async def extend(self, hold_id: str, bounds: Bounds, more: Amounts) -> Granted | Refused:
        """See Store. A hold that Redis has lost may go on: its settlement is charged whole."""
        read_counted = self._running.get(hold_id)
        return await self._decide("extend", hold_id, bounds, more, read_counted()) if read_counted else Granted()

    async def settle(self, hold_id: str, bounds: Bounds, actual: Amounts) -> None:
        """See Store. Returns when Redis has it or has missed its deadline. When the caller is cancelled meanwhile it is sent again."""
        self._running.pop(hold_id, None)
        begun_s = self._clock()
        try:
            await self._send(hold_id, bounds, actual)
        except RedisAway:
            self._postpone(_Settlement(hold_id, bounds, actual, begun_s))
        except asyncio.CancelledError:
            self._postpone(_Settlement(hold_id, bounds, actual, begun_s))  # whether it was sent or not: twice is harmless
            raise

    async def _decide(self, script: str, hold_id: str, bounds: Bounds, amounts: Amounts, counted: Amounts) -> Granted | Refused:
        args = (hold_id, _encode(self._prefix, bounds), _dump(amounts), _dump(counted), self._lease_ms, _HOLD_TTL_S * 1000)
        try:
            reply = await self._scripts.run(script, self._keys(hold_id), args)
        except RedisAway as away:
            raise StoreAway(maybe_done=away.maybe_done) from None
        return _read_reply(reply, bounds)

    def _send(self, hold_id: str, bounds: Bounds, actual: Amounts) -> asyncio.Future[bytes]:
        args = (hold_id, _encode(self._prefix, bounds), _dump(actual), _HOLD_TTL_S * 1000)
        return self._scripts.send("settle", self._keys(hold_id), args)

    def _postpone(self, settlement: _Settlement) -> None:
        self._pending.append(settlement)
        if len(self._pending) > _PENDING:
            self._pending.popleft()
            self._lost += 1

    async def _keep(self) -> None:
        renew_at = self._clock()
        while True:
            await asyncio.sleep(_TICK_S)
            await self._send_pending()
            if self.is_away or self._clock() >= renew_at:  # nobody else may ask meanwhile whether it is back
                renew_at = self._clock() + self._lease_ms / 3000
                await self._renew()

    async def _send_pending(self) -> None:
        while self._pending:
            settlement = self._pending[0]
            try:
                # The mark that it was settled before lives no longer than a hold: after that, sending twice would charge twice.
                if self._clock() - settlement.at_s < _HOLD_TTL_S / 2:
                    await self._send(settlement.hold_id, settlement.bounds, settlement.actual)
                else:
                    self._lost += 1
            except RedisAway:
                return
            if self._pending and self._pending[0] is settlement:
                self._pending.popleft()

    async def _renew(self) -> None:
        running = list(self._running.items())
        keys = (f"{self._prefix}hold:", self._leases_key)
        try:
            for start in range(0, len(running), _BATCH):
                counts = [text for hold_id, read_counted in running[start : start + _BATCH] for text in (hold_id, _dump(read_counted()))]
                await self._scripts.run("renew", keys, (self._lease_ms, _HOLD_TTL_S * 1000, *counts))
            await self._scripts.run("reap", keys, (_BATCH,))
        except RedisAway:
            return

    def _keys(self, hold_id: str) -> tuple[str, str]:
        return f"{self._prefix}hold:{hold_id}", self._leases_key


@lru_cache(maxsize=CALLERS)
def _encode(prefix: str, bounds: Bounds) -> bytes:
    return json.dumps([_describe(prefix, bound) for bound in bounds]).encode()


def _describe(prefix: str, bound: Bound) -> dict[str, str | int]:
    window = bound.rule.window
    slots = {"slot_ms": window.slot_ms, "slots": window.slots} if window else {}
    return {"key": prefix + bound.key, "metric": bound.rule.metric, "limit": bound.limit, **slots}


def _dump(amounts: Amounts) -> str:
    return f"[{amounts.requests},{amounts.input_tokens},{amounts.output_tokens},{amounts.micros}]"


def _read_reply(reply: Sequence[int], bounds: Bounds) -> Granted | Refused:
    if reply[0] == _REFUSED:
        _, place, wait_ms = reply
        return Refused(bounds[place - 1], None if wait_ms < 0 else wait_ms)
    return Granted(tuple(reply[1:])) if reply[0] == _GRANTED else Granted()

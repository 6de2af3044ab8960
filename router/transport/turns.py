"""How turns are ended, whichever door they came by."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

from router.errors import TidegateError, draining

LEAVE_S = 2.0
"""Seconds for turns that are ended to settle and to be told of: more than the one for which a turn's end waits for the ledger's disk."""


def cancel_turn(task: asyncio.Task[None], *reason: TidegateError) -> None:
    """Cancels a turn behind its task's first step: a task that is cancelled before never runs, and the turn would have no end."""
    asyncio.get_running_loop().call_soon(partial(task.cancel, *reason))


async def drain_turns(running: Collection[asyncio.Task[None]], grace_s: float) -> None:
    """Lets turns finish for `grace_s` seconds, ends the rest as failed, and waits until those have told so, for LEAVE_S at most."""
    if running:
        await asyncio.wait(running, timeout=grace_s)
    for turn in running:
        cancel_turn(turn, draining())
    if running:
        await asyncio.wait(running, timeout=LEAVE_S)

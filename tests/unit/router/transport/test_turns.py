"""How turns are ended when the router goes."""

from __future__ import annotations

import asyncio

from router.transport.turns import drain_turns


class Turn:
    """A turn that needs a while for its end, as one does whose usage goes to a slow disk."""

    def __init__(self, *, runs_s: float) -> None:
        self._runs_s = runs_s
        self.end = ""

    async def run(self) -> None:
        try:
            await asyncio.sleep(self._runs_s)
            self.end = "finished"
        except asyncio.CancelledError as cancelled:
            await asyncio.sleep(0.05)
            self.end = cancelled.args[0].reason


async def test_a_drain_returns_when_the_turns_that_it_ended_have_told_their_end() -> None:
    """Else what stops next, the server, would cut their calls off before their callers hear why."""
    turns = [Turn(runs_s=60.0), Turn(runs_s=60.0)]
    await drain_turns([asyncio.create_task(turn.run()) for turn in turns], 0.01)
    assert [turn.end for turn in turns] == ["DRAINING", "DRAINING"]


async def test_a_drain_lets_turns_finish_within_the_grace() -> None:
    """Only those that run on are ended."""
    turns = [Turn(runs_s=0.01), Turn(runs_s=60.0)]
    await drain_turns([asyncio.create_task(turn.run()) for turn in turns], 0.2)
    assert [turn.end for turn in turns] == ["finished", "DRAINING"]


async def test_a_drain_without_turns_returns_at_once() -> None:
    """There is nothing to wait for."""
    await drain_turns([], 60.0)

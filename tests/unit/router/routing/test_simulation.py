"""How much of the prompts is found in the workers' caches, simulated with the router's own policy code."""

from __future__ import annotations

import random

import pytest

from router.routing.policy import KvAware, LeastLoaded, RoundRobin
from tests.unit.router.routing.simulator import Outcome, Turn, converse, play

BLOCKS = 6_000
"""Of all workers together: about half of what the conversations have in all."""


@pytest.fixture(scope="module")
def turns() -> list[Turn]:
    return converse(random.Random(1), talks=100, over_s=80)


@pytest.fixture(scope="module")
def oracle(turns: list[Turn]) -> Outcome:
    """One worker with all the blocks: nothing is computed twice because it was computed elsewhere."""
    return play(KvAware(), turns, 1, BLOCKS)


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_conversations_find_their_prefixes(turns: list[Turn], oracle: Outcome, workers: int) -> None:
    """Nine tenths of what one great worker would have cached, where round robin has ever less the more workers there are; and yet the load
    is spread as evenly as by those who look at nothing else."""
    aware, robin, least = (play(policy, turns, workers, BLOCKS // workers) for policy in (KvAware(), RoundRobin(), LeastLoaded()))
    assert aware.hit_share >= 0.9 * oracle.hit_share
    assert robin.hit_share < (0.9, 0.7, 0.6)[[2, 4, 8].index(workers)] * oracle.hit_share
    assert aware.busiest <= least.busiest + 2


def test_guesses_come_true(turns: list[Turn]) -> None:
    """What the router expects to be cached is what the caches have, within a hundredth of all tokens."""
    outcome = play(KvAware(), turns, 4, BLOCKS // 4)
    assert outcome.guessed_share == pytest.approx(outcome.hit_share, abs=0.01)

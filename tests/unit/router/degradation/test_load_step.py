"""A step to three times what the flagship's pool can serve, on simulated pools: who is answered when and by whom, and how it ends."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

import pytest

from router.admission.entry import QueueLimits
from router.degradation.ladder import Ladder
from tests.unit.router.degradation.simulation import Fate, Pool, Simulation, come_randomly

SLO = 2.0
CAPACITY = 4.0
"""Turns a second that the flagship's eight slots serve."""
UP, DOWN, END = 120.0, 420.0, 600.0
"""When the load steps up from half of that to three times, and down again."""


def simulate(small_slots: int = 16, *, may_downgrade: float = 1.0, longest_wait_s: float = 5.0, seed: int = 1) -> Simulation:
    """Plays the step; the smaller model is four times as fast."""
    limits = QueueLimits(longest_wait_s=longest_wait_s)
    flagship = Pool("flagship", 8, 0.1, 0.0475, Ladder(SLO), limits)
    simulation = Simulation(flagship, Pool("small", small_slots, 0.025, 0.012, Ladder(None), limits), seed)
    phases = ((UP, 0.5 * CAPACITY), (DOWN - UP, 3 * CAPACITY), (END - DOWN, 0.5 * CAPACITY))
    simulation.play(list(come_randomly(phases, may_downgrade=may_downgrade, seed=seed)))
    return simulation


def changes_of(simulation: Simulation) -> list[float]:
    states = simulation.degraded
    return [now for (_, before), (now, after) in pairwise(states) if before != after]


def answered(fates: Sequence[Fate]) -> list[Fate]:
    return [fate for fate in fates if fate.first_token_s is not None]


def p99(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_load_step_is_taken_by_the_smaller_model(seed: int) -> None:
    """All are answered, within the SLO; the flagship serves as many as it can, the hard ones; and the pool changes its mind twice."""
    simulation = simulate(seed=seed)
    assert answered(simulation.fates) == simulation.fates
    assert p99([fate.ttft_s for fate in simulation.fates]) <= SLO
    overload = [fate for fate in simulation.fates if UP + 20 < fate.arrival.at_s < DOWN]
    stayed, went = ([fate.arrival.hardness for fate in overload if fate.pool == pool] for pool in ("flagship", "small"))
    assert len(stayed) >= 0.95 * CAPACITY * (DOWN - UP - 20)
    assert statistics.mean(stayed) > statistics.mean(went) + 0.25
    begun, ended = changes_of(simulation)
    assert UP <= begun < UP + 20
    assert DOWN < ended < END


@pytest.mark.parametrize("may_downgrade", [1.0, 0.5, 0.0])
def test_what_nobody_can_take_waits_visibly_or_is_refused(may_downgrade: float) -> None:
    """With too few small slots, and turns that must not go there: first tokens come within the SLO and the wait that was told."""
    simulation = simulate(2, may_downgrade=may_downgrade)
    refused = [fate.refusal for fate in simulation.fates if fate.refusal]
    assert refused
    assert all(refusal.retry_after_s and refusal.code.value == "RESOURCE_EXHAUSTED" for refusal in refused)
    assert p99([fate.ttft_s - fate.told_s for fate in answered(simulation.fates)]) <= SLO
    assert all(fate.arrival.may_downgrade for fate in simulation.fates if fate.pool == "small")
    assert len(changes_of(simulation)) <= 2

"""The time model: it finds the engine's figures, follows changes, and its error bars hold what they promise."""

from __future__ import annotations

import random
import statistics

import pytest

from router.admission.bars import Bars
from router.admission.entry import Entry, QueueLimits, Work
from router.admission.estimate import TimeModel, Timing
from router.admission.fit import Quantiles, Regression
from tests.unit.router.admission.engine import Arrival, Engine, Outcome


def test_a_fit_finds_the_coefficients() -> None:
    """Noisy values of a linear law give its coefficients back."""
    dice, fit = random.Random(1), Regression((0.0, 0.0))
    for _ in range(500):
        x = dice.random()
        fit.observe((1.0, x), 2 + 3 * x + dice.gauss(0, 0.05))
    assert fit.weights == pytest.approx([2, 3], abs=0.1)


def test_a_fit_follows_a_lasting_change() -> None:
    """A law that has changed is learnt although its first values look like outliers."""
    dice, fit = random.Random(1), Regression((0.0, 0.0))
    for level in (1.0, 5.0):
        for _ in range(600):
            fit.observe((1.0, dice.random()), level + dice.gauss(0, 0.02))
    assert fit.predict((1.0, 0.5)) == pytest.approx(5.0, rel=0.05)


def test_a_fit_resists_one_stall() -> None:
    """A single value a thousand times too large moves the fit by little."""
    dice, fit = random.Random(1), Regression((0.0, 0.0))
    for _ in range(300):
        fit.observe((1.0, dice.random()), 1 + dice.gauss(0, 0.05))
    fit.observe((1.0, 0.5), 1000.0)
    assert fit.predict((1.0, 0.5)) == pytest.approx(1.0, rel=0.05)


def test_a_fit_stays_sane_without_news() -> None:
    """Thousands of equal observations leave the other direction as doubtful as it was, not more."""
    fit = Regression((0.0, 0.0))
    for _ in range(5000):
        fit.observe((1.0, 0.5), 1.0)
    fit.observe((1.0, 0.6), 1.01)
    assert fit.predict((1.0, 0.9)) == pytest.approx(1.0, rel=0.2)


def test_quantiles_are_those_of_the_latest_values() -> None:
    """Old values go, and before there are enough the prior speaks."""
    quantiles = Quantiles((7.0,), size=100, enough=10)
    assert quantiles.at(0.9) == 7.0
    for value in range(1000):
        quantiles.add(float(value))
    assert quantiles.at(0.5) == pytest.approx(950, abs=1)
    assert quantiles.at(0.9) == pytest.approx(990, abs=1)


def test_the_model_finds_prefill_and_step_times() -> None:
    """From the timings of turns in batches of many sizes it predicts both for sizes it has not seen."""
    dice, times = random.Random(1), TimeModel()
    for _ in range(800):
        new, cached, batch = dice.randint(10, 2000), dice.choice([0, 500]), dice.randint(1, 32)
        prefill_s = (0.005 + 1e-4 * new + 2e-8 * new * (new + cached)) * dice.uniform(0.9, 1.1)
        decode_s = 49 * (0.02 + 0.001 * batch) * dice.uniform(0.9, 1.1)
        times.observe(Timing(new, new + cached, 50, prefill_s, decode_s, batch))
    span = times.prefill(1000, 1500)
    assert span.mid == pytest.approx(0.005 + 0.1 + 0.03, rel=0.1)
    assert span.low < span.mid < span.high < 1.25 * span.mid
    assert times.step_s == pytest.approx(0.02 + 0.001 * 16, rel=0.25)


def test_what_a_worker_does_not_tell_is_not_learnt() -> None:
    """Zeros mean "unknown", not "fast"."""
    times, fresh = TimeModel(), TimeModel()
    for _ in range(50):
        times.observe(Timing(100, 100, 20, 0.0, 0.0, 4))
    assert times.step_s == fresh.step_s
    assert times.prefill(100, 100) == fresh.prefill(100, 100)


def test_a_longer_queue_means_a_longer_wait() -> None:
    """More work ahead, or fewer slots, never shortens the wait; there is always some."""
    times = TimeModel()
    running = Work(4, 400, 40_000, 200.0)
    short = times.forecast(running, 4).wait(Work()).span
    long = times.forecast(running, 4).wait(Work(10, 1000, 100_000, 500.0)).span
    fewer = times.forecast(running, 1).wait(Work(10, 1000, 100_000, 500.0)).span
    assert 0 < short.mid < long.mid < fewer.mid


def test_bars_hold_even_when_errors_come_in_runs() -> None:
    """Waits that are long for a while and short for a while, against a model that knows nothing of it: one in ten exceeds the upper bar."""
    dice, bars = random.Random(2), Bars()
    exceeded = []
    for at in range(4000):
        level = 2.0 if (at // 150) % 2 else 0.7
        wait = bars.draw()(1.0, 8)
        actual_s = level * dice.lognormvariate(0, 0.3)
        bars.observe(wait, actual_s)
        exceeded.append(actual_s > wait.span.high)
    assert statistics.mean(exceeded[500:]) == pytest.approx(0.1, abs=0.03)


def saturate(seed: int, turns: int = 2000, tenants: int = 6) -> list[Arrival]:
    """Arrivals at 1.2 and 0.85 times what eight slots serve, in turn, so that up to a hundred wait; outputs of exponential length."""
    dice, now, arrivals = random.Random(seed), 0.0, []
    for at in range(turns):
        now += dice.expovariate(8.4 if (at // 250) % 2 == 0 else 6.0)
        output = max(1, round(dice.expovariate(1 / 40)))
        arrivals.append(Arrival(now, Entry(str(dice.randrange(tenants)), dice.randint(20, 800), 40.0), output))
    return arrivals


def waits_of(outcomes: list[Outcome], skip: int = 200) -> list[tuple[float, float, float]]:
    """Told expectation, told upper bar and actual wait of those that waited, without the first ones, which the model learns from."""
    waited = [(o.told, o.begun_s - o.arrival.at_s) for o in outcomes if o.told and o.begun_s is not None]
    return [(told.eta_s, told.high_s, actual) for told, actual in waited[skip:]]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_told_waits_come_true(seed: int) -> None:
    """On a simulated engine under a saturating trace the median error is at most a quarter, and nine in ten waits end by the upper bar."""
    engine = Engine(slots=8, limits=QueueLimits(longest_wait_s=1e9))
    waits = waits_of(engine.play(saturate(seed)))
    assert len(waits) > 500
    assert statistics.median(abs(eta - actual) / actual for eta, _, actual in waits) <= 0.25
    assert 0.85 <= statistics.mean(actual <= high for _, high, actual in waits) <= 0.95

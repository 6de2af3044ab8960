"""Which worker takes a turn."""

from __future__ import annotations

import pytest

from router.errors import Code, WorkerError
from router.routing.workers import Workers
from tests.unit.router.fake_worker import FakeWorker


def make_workers(*workers: FakeWorker) -> Workers:
    """These workers for the model `served`, and none that is up for `idle`."""
    down = FakeWorker(up=False)
    return Workers({"served": [worker.as_worker() for worker in workers], "idle": [down.as_worker()]})


def test_the_least_busy_worker_is_chosen() -> None:
    """What counts are the turns this router runs there."""
    busy, free = FakeWorker(busy=3), FakeWorker(busy=1)
    assert make_workers(busy, free).choose("served") is free.as_worker()


def test_a_worker_that_is_down_is_not_chosen() -> None:
    """However little it has to do."""
    busy, down = FakeWorker(busy=3), FakeWorker(up=False)
    assert make_workers(down, busy).choose("served") is busy.as_worker()


def test_without_a_worker_that_is_up_a_turn_is_refused() -> None:
    """Refused as unavailable for now, not as wrong."""
    with pytest.raises(WorkerError) as refused:
        make_workers(FakeWorker()).choose("idle")
    assert (refused.value.code, refused.value.reason) == (Code.UNAVAILABLE, "NO_WORKER")
    assert refused.value.retry_after_s is not None


def test_a_model_is_served_while_one_worker_is_up() -> None:
    """Each model for itself."""
    workers = make_workers(FakeWorker(up=False), FakeWorker())
    assert {model: workers.is_served(model) for model in workers.models} == {"served": True, "idle": False}


def test_all_lanes_can_be_walked() -> None:
    """Those of every model, up or not."""
    one, two = FakeWorker(up=False), FakeWorker()
    assert list(make_workers(one, two))[:2] == [one.as_worker(), two.as_worker()]
    assert len(list(make_workers(one, two))) == 3

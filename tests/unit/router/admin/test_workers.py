"""What operators see of the workers, and who is drained."""

from __future__ import annotations

from router.admin.workers import ModelWorker, WorkersAdmin
from router.auth.principal import Principal, Role
from router.routing.table import Phase
from router.routing.view import WorkerView
from router.store.database import Database
from tests.unit.router.fake_worker import FakeWorker, fleet_of

OPS = Principal("house", "ops", frozenset({Role.OPERATOR}))


def test_workers_are_shown_by_model_and_address() -> None:
    """Whatever their phase; no database is asked."""
    large, small = fleet_of(FakeWorker("b:1"), FakeWorker("a:1", up=False), FakeWorker("c:1", busy=1)), fleet_of(FakeWorker("b:1"))
    large.set_drained(["b:1"])
    large.update(["a:1", "b:1"])
    shown = WorkersAdmin(Database(""), {"small": small, "large": large}, lambda: ()).view(OPS)
    assert [(model, it.address, it.phase, it.up, it.running) for model, it in shown] == [
        ("large", "a:1", Phase.SERVING, False, 0),
        ("large", "b:1", Phase.DRAINING, True, 0),
        ("large", "c:1", Phase.LEAVING, True, 1),
        ("small", "b:1", Phase.SERVING, True, 0),
    ]


def test_a_drain_without_a_worker_is_shown_too() -> None:
    """Else nobody would know why a worker that comes there gets no turns, nor which drains are left over."""
    workers = WorkersAdmin(Database(""), {"m": fleet_of(FakeWorker("a:1"))}, lambda: {"z:1", "a:1", "y:1"})
    assert workers.view(OPS)[1:] == [ModelWorker("", WorkerView("y:1")), ModelWorker("", WorkerView("z:1"))]

"""What operators see of the workers, and taking one out of service and back into it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from router.admin.audit import Action, note
from router.admin.checks import check_id, require
from router.auth.principal import Principal
from router.errors import unknown
from router.routing.fleet import Fleet
from router.routing.view import WorkerView
from router.store.database import Database
from router.store.drains import DrainStore


class ModelWorker(NamedTuple):
    """A worker of a model; the model is empty for an address that is drained and where this router has no worker."""

    model: str
    worker: WorkerView


class WorkersAdmin:
    """The workers of all models, and drains, which hold on every router of the database until they are lifted.

    Every method takes who asks, and raises CallerError PERMISSION_DENIED or FIELD_INVALID, and StoreAway.
    """

    def __init__(self, database: Database, fleets: Mapping[str, Fleet], drained: Callable[[], Collection[str]]) -> None:
        """`drained` tells the addresses of drained workers as this router knows them."""
        self._database = database
        self._fleets = fleets
        self._drained = drained

    def view(self, who: Principal) -> list[ModelWorker]:
        """The workers as they are now, by model and address, absent ones last."""
        who.require_operator()
        present = [ModelWorker(model, worker) for model, fleet in sorted(self._fleets.items()) for worker in fleet.view()]
        absent = set(self._drained()).difference(self._list_addresses())
        return [*present, *(ModelWorker("", WorkerView(address)) for address in sorted(absent))]

    async def drain(self, who: Principal, address: str) -> None:
        """Sends a worker no new turns. Raises CallerError WORKER_UNKNOWN when this router has no such worker."""
        who.require_operator()
        require(check_id("address", address))
        if address not in self._list_addresses():
            raise unknown("worker", "address")
        async with self._database.transact() as change:
            await DrainStore(change).put(address)
            await note(change, who, Action.WORKER_DRAINED, "", address)

    async def resume(self, who: Principal, address: str) -> None:
        """Sends a worker turns again. Raises CallerError WORKER_UNKNOWN when none of this address is drained."""
        who.require_operator()
        require(check_id("address", address))
        async with self._database.transact() as change:
            if not await DrainStore(change).delete(address):
                raise unknown("worker", "address", "no worker of this address is drained")
            await note(change, who, Action.WORKER_RESUMED, "", address)

    def _list_addresses(self) -> Iterator[str]:
        return (worker.address for fleet in self._fleets.values() for worker in fleet)

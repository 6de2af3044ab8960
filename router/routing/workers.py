"""The workers of each model, and which of them takes a turn."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from router.errors import no_worker
from router.upstream.worker import Worker


class Workers:
    """The workers by model name."""

    def __init__(self, workers: Mapping[str, Sequence[Worker]]) -> None:
        self._workers = workers

    def __iter__(self) -> Iterator[Worker]:
        return (worker for workers in self._workers.values() for worker in workers)

    @property
    def models(self) -> Collection[str]:
        """Names of all models, served or not."""
        return self._workers.keys()

    def is_served(self, model: str) -> bool:
        """Whether any worker of the model is up."""
        return any(worker.up for worker in self._workers[model])

    def count_slots(self, model: str) -> int:
        """How many turns of this router the model's workers run at once."""
        return sum(worker.slots for worker in self._workers[model])

    def measure_room(self, model: str) -> int:
        """Tokens that prompt and answer may have together on any worker: the context it was built for, and what its KV cache holds.

        Raises WorkerError NO_WORKER.
        """
        descriptions = [worker.description for worker in self._find_up(model)]
        return min(min(it.context_tokens, it.pool_tokens) for it in descriptions if it)

    def choose(self, model: str) -> Worker:
        """The worker that is up and runs the fewest of this router's turns. Raises WorkerError NO_WORKER."""
        return min(self._find_up(model), key=lambda worker: worker.running)

    def _find_up(self, model: str) -> Sequence[Worker]:
        up = [worker for worker in self._workers[model] if worker.up]
        if not up:
            raise no_worker()
        return up

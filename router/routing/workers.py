"""The workers of each model, and which of them takes a turn."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from router.errors import no_worker
from router.upstream.lane import Lane


class Workers:
    """The lanes by model name."""

    def __init__(self, lanes: Mapping[str, Sequence[Lane]]) -> None:
        self._lanes = lanes

    def __iter__(self) -> Iterator[Lane]:
        return (lane for lanes in self._lanes.values() for lane in lanes)

    @property
    def models(self) -> Collection[str]:
        """Names of all models, served or not."""
        return self._lanes.keys()

    def is_served(self, model: str) -> bool:
        """Whether any worker of the model is up."""
        return any(lane.up for lane in self._lanes[model])

    def choose(self, model: str) -> Lane:
        """The worker that is up and runs the fewest of this router's turns. Raises WorkerError NO_WORKER."""
        up = [lane for lane in self._lanes[model] if lane.up]
        if not up:
            raise no_worker()
        return min(up, key=lambda lane: lane.running)

"""A turn's way over the workers: to its end on one or, when that is lost, on the next.

The next goes on where the last stopped: its prompt is the turn's and all tokens so far, and nothing that the caller has seen is said again.
An answer that is bound to a form (guided decoding, forced tool calls) is made anew from the start with the same seed instead, because a
guide cannot be entered in the middle; it is compared with what was already told, and goes on only if it is the same.

A turn gets at most three workers, and all turns together a budget for second tries, so that an outage is not made worse by it. Who has
tried more than one worker tells its caller no time to come again: whatever was to be tried has been tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from router.answer import Answer
from router.errors import TidegateError, WorkerError
from router.model import FinishReason, GenerationRequest, Started
from router.routing.breaker import Outcome, judge
from router.routing.fleet import Fleet
from router.routing.route import Ending, Need, Route

MOST_WORKERS = 3


class Journey:
    """One turn's."""

    def __init__(self, fleet: Fleet, need: Need, asked: GenerationRequest, answer: Answer) -> None:
        self._fleet = fleet
        self._need = need
        self._asked = asked
        self._answer = answer
        self._tried: list[str] = []

    async def run(self, describe: Callable[[Route], Started]) -> None:
        """Runs the turn to its end; `describe` gives what the caller is told of the first worker. Raises WorkerError and RouterError."""
        route = await self._fleet.place(self._need)
        self._answer.start(describe(route))
        error = await self._try(route, self._asked)
        while error is not None:
            route = await self._place_again(error)
            self._answer.move(error.reason)
            if (asked := self._continue()) is None:
                route.end(Ending(Outcome.NOTHING))
                return
            error = await self._try(route, asked)

    async def _place_again(self, error: WorkerError) -> Route:
        try:
            if len(self._tried) < MOST_WORKERS and error.reason != "ENGINE_REFUSED" and self._fleet.may_retry(self._need):
                return await self._fleet.place(self._need, self._tried)
        except WorkerError:  # there is no other: what happened to this one is the answer
            pass
        if len(self._tried) > 1:
            error.retry_after_s = None
        raise error

    def _continue(self) -> GenerationRequest | None:
        """What the next worker is asked; None when the answer was whole but for its end."""
        made = self._answer.tokens
        if self._asked.guide is not None:
            self._answer.replay()
            return self._asked
        if len(made) >= self._asked.max_new_tokens:
            self._answer.stop(FinishReason.LENGTH)
            return None
        fewest = self._asked.min_new_tokens
        return replace(
            self._asked,
            prompt=[*self._asked.prompt, *made],
            max_new_tokens=self._asked.max_new_tokens - len(made),
            min_new_tokens=None if fewest is None else max(0, fewest - len(made)),
        )

    async def _try(self, route: Route, asked: GenerationRequest) -> WorkerError | None:
        """Runs a generation; the error that it ended with when another worker may do better."""
        self._tried.append(route.worker.address)
        outcome = Outcome.NOTHING
        try:
            await self._answer.generate(route, asked)
            outcome = Outcome.ANSWERED
        except TidegateError as error:
            outcome = judge(error)
            if isinstance(error, WorkerError):
                return error
            raise
        finally:
            route.end(Ending(outcome, self._answer.tokens, self._answer.last_delta))
        return None

"""Which model a turn gets, of three that stand in for each other: what is asked of whom, in which order, and what is raised."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from router.admission.entry import Entry
from router.choice import Choice, Chooser, Wish
from router.degradation.cascade import FeaturePredictor
from router.errors import TidegateError
from router.model import Call, Degraded, Message, Priority, Role, TurnRequest
from router.model_config import Alias, ModelConfig
from router.models import Model, Models
from router.text.tokenizer import Tokenizer
from tests.bench.pools import make_pool
from tests.unit.router.fake_spending import ANN, FakeTerms
from tests.unit.router.fake_worker import POOL, FakeWorker

NAMES = ("huge", "large", "small")
EASY = TurnRequest("", [Message(Role.USER, "hi")])
HARD = TurnRequest("", [Message(Role.USER, "Solve 3 + 4 = x.")])
LONG = TurnRequest("", [Message(Role.USER, "x" * POOL)])
WISH = Wish(ANN, Call("r"), EASY, None)


class Desk:
    """Three pools of one slot each, of which `huge` goes down to `large` and that to `small`; and `auto`, which is all of them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.workers = {name: FakeWorker() for name in NAMES}
        self.pools = {name: make_pool(worker.connect, [name], lambda: 1, slo_s=1.0) for name, worker in self.workers.items()}
        for name in NAMES:
            self.pools[name].fleet.update([name])
            self.set_up(name, up=True)
        executor = ThreadPoolExecutor(1)
        below = dict(zip(NAMES, (*NAMES[1:], None), strict=True))
        configs = [ModelConfig(name=name, path=Path(), workers=(f"{name}:1",), smaller=smaller) for name, smaller in below.items()]
        models = [Model(config, tokenizer, executor) for config in configs]
        self.models = Models(models, [Alias(name="auto", models=NAMES[::-1])])
        self.terms = FakeTerms()
        self.chooser = Chooser(self.models, self.pools, self.terms, FeaturePredictor(), time.monotonic)

    def set_up(self, name: str, *, up: bool) -> None:
        self.workers[name].up = up
        self.workers[name].owner.on_state()

    @asynccontextmanager
    async def busy(self, *names: str) -> AsyncIterator[None]:
        """Turns run in these pools for much longer than their SLO."""
        long = Entry("other", 10, 5000.0)
        tickets = [(self.pools[name].queue, await self.pools[name].queue.enter(long, lambda *_: None)) for name in names]
        yield
        for queue, ticket in tickets:
            queue.leave(ticket)

    async def choose(self, name: str = "huge", wish: Wish = WISH) -> Choice:
        return await self.chooser.choose(self.models.find(name), wish)

    async def told(self, name: str = "huge", wish: Wish = WISH) -> tuple[str, Degraded | None]:
        """The model, and whether the caller is told of a downgrade."""
        choice = await self.choose(name, wish)
        return choice.model.name, choice.degraded

    async def refusal(self, name: str = "huge", wish: Wish = WISH) -> str:
        with pytest.raises(TidegateError) as refused:
            await self.choose(name, wish)
        return refused.value.reason


@pytest.fixture
def desk(chatml: Path) -> Desk:
    return Desk(Tokenizer.load(chatml))


def saturated(to: str) -> tuple[str, Degraded]:
    return to, Degraded("huge", to, "SATURATED")


async def test_a_turn_goes_no_further_down_than_it_must(desk: Desk) -> None:
    """To the largest model that takes it in time; where none does, it waits for the one it asked for."""
    assert await desk.told() == ("huge", None)
    async with desk.busy("huge"):
        assert await desk.told() == saturated("large")
        async with desk.busy("large"):
            assert await desk.told() == saturated("small")
            async with desk.busy("small"):
                assert await desk.told() == ("huge", None)


async def test_a_model_that_a_key_is_not_for_is_passed_over(desk: Desk) -> None:
    """On the way down, and among an alias's."""
    wish = replace(WISH, who=replace(ANN, models=frozenset({"huge", "small"})))
    async with desk.busy("huge"):
        assert await desk.told(wish=wish) == saturated("small")
    desk.set_up("small", up=False)
    assert await desk.told("auto", wish) == ("huge", None)


async def test_without_consent_nobody_goes_down(desk: Desk) -> None:
    """Nor do batch turns: they wait, or come again."""
    batch = replace(WISH, request=replace(EASY, priority=Priority.BATCH))
    async with desk.busy("huge"):
        assert await desk.told(wish=batch) == ("huge", None)
        desk.terms.allow_downgrades = False
        assert await desk.told() == ("huge", None)
    desk.set_up("huge", up=False)
    assert await desk.refusal() == "NO_WORKER"


@pytest.mark.parametrize("prompt", [{"text": "hi"}, {"input_ids": [5, 6]}])
async def test_what_is_made_for_one_model_stays_with_it(desk: Desk, prompt: dict[str, Any]) -> None:
    """A text without a chat template, and token ids: another model would read them otherwise."""
    wish = replace(WISH, request=TurnRequest("", (), **prompt))
    async with desk.busy("huge"):
        assert await desk.told(wish=wish) == ("huge", None)
    desk.set_up("huge", up=False)
    assert await desk.refusal(wish=wish) == "NO_WORKER"


async def test_rather_wait_below_than_not_be_served(desk: Desk) -> None:
    """While a model is down its turns wait for a smaller one, however long; with nobody left they hear of the model they asked for."""
    desk.set_up("huge", up=False)
    async with desk.busy("large", "small"):
        assert await desk.told() == ("large", Degraded("huge", "large", "NO_WORKER"))
        desk.set_up("large", up=False)
        assert (await desk.told())[0] == "small"
    desk.set_up("small", up=False)
    assert await desk.refusal() == "NO_WORKER"


async def test_what_is_wrong_with_a_request_is_told_by_the_model_it_asks_for(desk: Desk) -> None:
    """No smaller model is tried for it; and a smaller one that it does not fit is none to go down to."""
    assert await desk.refusal(wish=replace(WISH, request=LONG)) == "PROMPT_TOO_LONG"
    desk.workers["huge"].description = replace(desk.workers["huge"].description, pool_tokens=2 * POOL)
    async with desk.busy("huge"):
        assert await desk.told(wish=replace(WISH, request=LONG)) == ("huge", None)


async def test_an_alias_passes_on_to_the_next_larger(desk: Desk) -> None:
    """When the chosen one would not serve the turn; nothing is degraded by that. The last of them says what is wrong."""
    assert await desk.told("auto") == ("small", None)
    assert await desk.told("auto", replace(WISH, request=HARD)) == ("large", None)
    desk.set_up("small", up=False)
    assert await desk.told("auto") == ("large", None)
    desk.set_up("large", up=False)
    assert await desk.told("auto") == ("huge", None)
    assert await desk.refusal("auto", replace(WISH, request=LONG)) == "PROMPT_TOO_LONG"
    desk.set_up("huge", up=False)
    assert await desk.refusal("auto") == "NO_WORKER"


async def test_counting_uses_the_model_that_is_tried_first(desk: Desk) -> None:
    """Whether or not it is up."""
    desk.set_up("small", up=False)
    for request, expected in ((EASY, "small"), (HARD, "large")):
        assert desk.chooser.pick(desk.models.find("auto"), ANN, request).name == expected


async def test_a_choice_holds_what_the_queue_is_told(desk: Desk) -> None:
    """Prompt, room, priority and the caller's patience, in the queue's own time."""
    before = time.monotonic()
    choice = await desk.choose(wish=replace(WISH, request=replace(EASY, max_wait_s=5.0, max_output_tokens=7)))
    assert (choice.entry.tenant, choice.entry.prompt_tokens, choice.most) == (ANN.tenant, len(choice.prompt), 7)
    assert choice.entry.deadline_s is not None
    assert before + 5.0 <= choice.entry.deadline_s <= time.monotonic() + 5.0
    assert list(choice.chain.tokens) == list(choice.prompt)

"""Made-up callers: repeatable, of the shape that was asked for."""

from __future__ import annotations

from collections import Counter

import pytest
from loadtest.request import Request
from loadtest.workloads.synthetic import Shape, Span, make_requests

TIMES = [at / 10 for at in range(300)]


def requests(seed: int = 1, **shape: object) -> list[Request]:
    sizes = {"input_tokens": Span(10, 20), "output_tokens": Span(5, 5)}
    return list(make_requests(Shape(**(sizes | shape)), TIMES, seed))  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_requests() -> None:
    """Times, texts, tenants and lengths; another seed gives others."""
    assert requests(tenants=5, turns=Span(1, 3)) == requests(tenants=5, turns=Span(1, 3))
    assert requests(seed=1) != requests(seed=2)


def test_lengths_and_times_are_those_asked_for() -> None:
    """A word is a token."""
    made = requests()
    assert [request.at for request in made] == TIMES
    assert {len(request.messages[0].content.split()) for request in made} == set(range(10, 21))


def test_tenants_follow_zipf() -> None:
    """With exponent 1, the first asks twice as much as the second."""
    counts = Counter(request.tenant for request in make_requests(Shape(Span(1, 1), Span(1, 1), tenants=3, zipf=1.0), range(6000), 1))
    assert counts["tenant-1"] / counts["tenant-2"] == pytest.approx(2, rel=0.1)
    assert counts["tenant-1"] / counts["tenant-3"] == pytest.approx(3, rel=0.15)


def test_a_tenants_system_prompt_is_its_own() -> None:
    """The same in all its requests, and no other tenant's."""
    prompts: dict[str, set[str]] = {}
    for request in requests(tenants=3, system_tokens=30):
        assert request.messages[0].role == "system"
        prompts.setdefault(request.tenant, set()).add(request.messages[0].content)
    assert all(len(texts) == 1 for texts in prompts.values())
    assert len(set.union(*prompts.values())) == 3


def test_a_conversation_is_a_chain_of_follow_ups() -> None:
    """Each of one tenant, numbered on, and only the first has the system prompt."""
    made = requests(tenants=3, turns=Span(3, 3), system_tokens=5)
    numbers = [each.number for first in made for each in first.with_follow_ups()]
    assert numbers == list(range(900))
    turns = list(made[7].with_follow_ups())
    assert [len(turn.messages) for turn in turns] == [2, 1, 1]
    assert len({turn.tenant for turn in turns}) == 1


@pytest.mark.parametrize("text", ["0", "5..4", "x"])
def test_what_is_no_length_is_refused(text: str) -> None:
    """Before anything runs."""
    with pytest.raises(ValueError):  # noqa: PT011
        Span.parse(text)

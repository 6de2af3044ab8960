"""What the router expects to be in the workers' caches, and how the workers correct it."""

from __future__ import annotations

import json
import random
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from router.routing.chain import Chain
from router.routing.kv_events import read_kv_events
from router.routing.prefix import PrefixIndex
from tests.fakes.tensorrt_llm.arguments import KvCacheConfig
from tests.fakes.tensorrt_llm.cache import KvCache

SIZE = 4


def make_index(*workers: str, blocks: int = 100) -> PrefixIndex:
    index = PrefixIndex()
    for worker in workers:
        index.join(worker, SIZE, blocks)
    return index


def chain(*tokens: int, salt: str = "") -> Chain:
    return Chain(tokens, salt)


def test_what_was_sent_to_a_worker_is_expected_there() -> None:
    """In full blocks, and never the prompt's last token."""
    index = make_index("a", "b")
    index.insert("a", chain(*range(10)))
    assert index.match(chain(*range(10))) == {"a": 8, "b": 0}
    assert index.match(chain(*range(8))) == {"a": 4, "b": 0}
    assert index.match(chain(*range(6), 99, 98, 97)) == {"a": 4, "b": 0}
    assert index.match(chain()) == {"a": 0, "b": 0}


def test_an_answer_is_part_of_the_next_prompt() -> None:
    """The worker has computed its tokens too."""
    index = make_index("a")
    prompt = chain(*range(6))
    index.insert("a", prompt)
    index.insert("a", prompt.grow([6, 7, 8]))
    assert index.match(chain(*range(20))) == {"a": 8}


def test_a_lost_worker_has_lost_its_cache() -> None:
    """When it is back nothing is expected there; the others keep theirs."""
    index = make_index("a", "b")
    for worker in ("a", "b"):
        index.insert(worker, chain(*range(10)))
    index.leave("a")
    assert index.match(chain(*range(10))) == {"b": 8}
    index.join("a", SIZE, 100)
    assert index.match(chain(*range(10))) == {"a": 0, "b": 8}


def test_unknown_workers_are_ignored() -> None:
    """A turn may end after its worker has gone."""
    index = make_index()
    index.insert("gone", chain(*range(10)))
    index.observe("gone", 8, 0)
    index.take_events("gone", [])
    index.leave("gone")
    assert (index.match(chain(*range(10))), index.read_error("gone")) == ({}, 0.0)


def test_workers_may_have_blocks_of_different_sizes() -> None:
    """Each is matched in its own."""
    index = PrefixIndex()
    index.join("small", 2, 100)
    index.join("large", 8, 100)
    for worker in ("small", "large"):
        index.insert(worker, chain(*range(13)))
    assert index.match(chain(*range(13))) == {"small": 12, "large": 8}


def test_a_tenants_prefix_is_not_expected_for_another() -> None:
    """Not by its salted hashes, and not by the worker's events, which do not tell whose the blocks are."""
    index, cache = make_index("a"), make_cache()
    index.insert("a", chain(*range(12), salt="acme"))
    cache.store("acme", list(range(12)))
    index.take_events("a", take(cache))
    assert index.match(chain(*range(12), salt="acme")) == {"a": 8}
    assert index.match(chain(*range(12), salt="globex")) == {"a": 0}


def test_the_index_keeps_no_more_than_the_cache_holds() -> None:
    """The least recently used goes, ends of chains first."""
    index = make_index("a", blocks=4)
    index.insert("a", chain(*range(12)))
    index.insert("a", chain(*range(100, 109)))
    assert index.match(chain(*range(13))) == {"a": 8}
    assert index.match(chain(*range(100, 109))) == {"a": 8}


def make_cache() -> KvCache:
    return KvCache(KvCacheConfig(event_buffer_max_size=1000, tokens_per_block=SIZE))


def take(cache: KvCache) -> list[dict[str, Any]]:
    """The events so far."""
    return [json.loads(cache.events.get()) for _ in range(cache.events.qsize())]


def test_a_worker_tells_what_others_asked_it() -> None:
    """With events a prefix is known that another router sent."""
    index, cache = make_index("a", "b"), make_cache()
    cache.store(None, list(range(12)))
    cache.store(None, [*range(8), 20, 21, 22, 23])
    index.take_events("a", take(cache))
    assert index.match(chain(*range(13))) == {"a": 12, "b": 0}
    assert index.match(chain(*range(8), *range(20, 25))) == {"a": 12, "b": 0}


def test_a_worker_tells_what_it_removed() -> None:
    """Under every salt, until it is stored or sent again."""
    index, cache = make_index("a"), make_cache()
    for salt in ("", "acme"):
        index.insert("a", chain(*range(12), salt=salt))
    cache.store(None, list(range(12)))
    index.take_events("a", take(cache))
    assert [index.match(chain(*range(13), salt=salt))["a"] for salt in ("", "acme")] == [12, 12]
    cache.evict()
    index.take_events("a", take(cache))
    assert [index.match(chain(*range(13), salt=salt))["a"] for salt in ("", "acme")] == [0, 0]
    index.insert("a", chain(*range(12), salt="acme"))
    assert [index.match(chain(*range(13), salt=salt))["a"] for salt in ("", "acme")] == [0, 12]
    cache.evict()
    cache.store(None, list(range(12)))
    index.take_events("a", take(cache))
    assert [index.match(chain(*range(13), salt=salt))["a"] for salt in ("", "acme")] == [12, 12]


def test_a_block_is_gone_with_its_last_copy() -> None:
    """A worker that keeps tenants apart has one for each, under names of its own."""
    index, cache = make_index("a"), make_cache()
    index.insert("a", chain(*range(12), salt="acme"))
    for salt in ("acme", "globex"):
        cache.store(salt, list(range(12)))
    index.take_events("a", take(cache))
    cache.evict("globex")
    index.take_events("a", take(cache))
    assert index.match(chain(*range(13), salt="acme")) == {"a": 12}
    cache.evict("acme")
    index.take_events("a", take(cache))
    assert index.match(chain(*range(13), salt="acme")) == {"a": 0}


def test_a_name_that_is_told_again_is_one_copy() -> None:
    """A worker tells it when it has computed the block anew, or when the router has missed that it was removed."""
    index, cache = make_index("a"), make_cache()
    index.insert("a", chain(*range(12), salt="acme"))
    cache.store("acme", list(range(12)))
    told = take(cache)
    index.take_events("a", told + told)
    cache.evict()
    index.take_events("a", take(cache))
    assert index.match(chain(*range(13), salt="acme")) == {"a": 0}


def test_events_that_cannot_be_placed_are_left_out() -> None:
    """Those of blocks from before this router came, of other kinds, and what is no event."""
    index, cache = make_index("a"), make_cache()
    cache.store(None, list(range(4)))
    take(cache)
    cache.store(None, list(range(8)))
    late = take(cache)
    index.take_events("a", late)
    assert index.match(chain(*range(13))) == {"a": 0}
    assert list(read_kv_events([{}, {"data": None}, {"data": {"type": "stored"}}, {"data": {"type": "updated"}}])) == []
    assert len(list(read_kv_events(late))) == 1


@pytest.mark.parametrize(
    "data",
    [
        {"type": "removed", "block_hashes": [[]]},
        {"type": "removed", "block_hashes": [{}]},
        {"type": "stored", "parent_hash": {}, "blocks": []},
        {"type": "stored", "parent_hash": None, "blocks": [{"block_hash": [], "tokens": [{"token_id": 5}]}]},
        {"type": "stored", "parent_hash": None, "blocks": [{"block_hash": 5, "tokens": [{"token_id": float("inf")}]}]},
    ],
    ids=str,
)
def test_an_event_whose_names_are_none_breaks_no_lane(data: Any) -> None:
    """It would be told again, and the worker be of no use."""
    index = make_index("a")
    index.take_events("a", [{"data": data}])
    assert index.match(chain(*range(13))) == {"a": 0}


def test_partial_blocks_end_a_run() -> None:
    """Only full ones are looked up."""
    index = make_index("a")
    tokens = [{"token_id": token} for token in range(10)]
    blocks = [{"block_hash": at, "tokens": tokens[at * 4 : at * 4 + 4]} for at in range(3)]
    index.take_events("a", [{"data": {"type": "stored", "parent_hash": None, "blocks": blocks}}])
    assert index.match(chain(*range(13))) == {"a": 8}


class Engine:
    """A cache of so many blocks, freed as engines do: the least recently used, ends of chains first."""

    def __init__(self, blocks: int) -> None:
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._capacity = blocks

    def run(self, prompt: Chain) -> int:
        """Cached tokens, as it reports them."""
        hashes = prompt.blocks(SIZE)
        cached = 0
        while cached < prompt.count_reusable(SIZE) and hashes[cached] in self._blocks:
            cached += 1
        for block in reversed(hashes):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        return cached * SIZE


def conversations(dice: random.Random, number: int) -> Iterator[Chain]:
    """Prompts of conversations that go on in turn, each a few blocks longer every time, and end after eight turns."""
    talks: list[list[int]] = [[] for _ in range(number)]
    while True:
        talk = dice.choice(talks)
        if len(talk) > 8 * 3 * SIZE:
            talk.clear()
        talk += [dice.randrange(1000) for _ in range(3 * SIZE)]
        yield Chain(talk)


def play(index: PrefixIndex, engine: Engine, prompts: Sequence[Chain], *, corrected: bool = True) -> list[float]:
    """Runs the prompts on the worker `a`; by how many blocks each guess was off. `corrected`: what it reports is observed."""
    off = []
    for prompt in prompts:
        guessed = index.match(prompt)["a"]
        index.insert("a", prompt)
        reported = engine.run(prompt)
        if corrected:
            index.observe("a", guessed, reported)
        off.append(abs(guessed - reported) / SIZE)
    return off


def test_a_cache_that_others_use_too_is_learnt() -> None:
    """Half of the blocks are another router's: the index comes to expect the other half, and its guesses are right within a block."""
    off = {}
    for corrected in (False, True):
        ours, others = conversations(random.Random(1), 60), conversations(random.Random(2), 60)
        index, engine, off[corrected] = make_index("a", blocks=600), Engine(600), 0.0
        for _ in range(800):
            off[corrected] += sum(play(index, engine, [next(ours)], corrected=corrected)) / 800
            engine.run(next(others))
    assert off[False] > 2
    assert off[True] < 0.5


def test_room_that_was_given_up_is_won_back() -> None:
    """The others have gone: the worker reports more than was guessed, and the index grows to the whole cache."""
    talks = conversations(random.Random(1), 60)
    index = make_index("a", blocks=600)
    play(index, Engine(100), [next(talks) for _ in range(400)])
    late = play(index, Engine(600), [next(talks) for _ in range(800)])[-400:]
    assert sum(late) / len(late) < 0.1


def test_turns_that_came_at_once_do_not_shrink_the_index() -> None:
    """Sixty-four with the same new prefix are sent before the first is computed; the worker reports nothing cached for any."""
    index = make_index("a", blocks=100)
    for at in range(20):
        index.insert("a", chain(*range(1000 * at, 1000 * at + 4 * SIZE)))
    for guess in [0] + [40 - SIZE] * 63:
        index.insert("a", chain(*range(40)))
        index.observe("a", guess, 0)
    assert [index.match(chain(*range(1000 * at, 1000 * at + 17)))["a"] > 0 for at in range(20)].count(True) > 15

"""Hashes of a prompt's blocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.routing.chain import Chain

tokens = st.lists(st.integers(0, 130_000), max_size=100)
sizes = st.integers(1, 16)


@given(left=tokens, right=tokens, size=sizes)
def test_equal_hashes_are_equal_prefixes(left: list[int], right: list[int], size: int) -> None:
    """Two prompts share as many hashes as they share full blocks from their beginning."""
    shared = 0
    while left[: shared + size] == right[: shared + size] and len(left) >= shared + size <= len(right):
        shared += size
    pairs = list(zip(Chain(left).blocks(size), Chain(right).blocks(size), strict=False))
    assert [one == other for one, other in pairs] == [at < shared // size for at in range(len(pairs))]


@given(start=tokens, more=tokens, size=sizes, hashed=st.booleans(), salt=st.sampled_from(["", "acme"]))
def test_a_grown_chain_is_that_of_all_tokens(start: list[int], more: list[int], size: int, hashed: bool, salt: str) -> None:
    """Whether or not the beginning was hashed before."""
    chain = Chain(start, salt)
    if hashed:
        chain.blocks(size)
        chain.content(size)
    grown, whole = chain.grow(more), Chain(start + more, salt)
    assert len(grown) == len(start) + len(more)
    assert (grown.blocks(size), grown.content(size)) == (whole.blocks(size), whole.content(size))
    assert len(chain.blocks(size)) == len(start) // size


def test_salts_keep_chains_apart() -> None:
    """Equal tokens under another salt have no hash in common; without the salts they have all."""
    prompt = list(range(64))
    acme, globex, anyone = Chain(prompt, "acme"), Chain(prompt, "globex"), Chain(prompt)
    assert len({*acme.blocks(16), *globex.blocks(16), *anyone.blocks(16)}) == 12
    assert acme.content(16) == globex.content(16) == anyone.content(16) == anyone.blocks(16)
    assert [chain.is_shared for chain in (acme, globex, anyone)] == [False, False, True]


def test_a_key_is_that_of_the_beginning() -> None:
    """Whatever follows and whoever asks, in this process and in others: it is a number of the tokens alone."""
    prompt = list(range(40))
    assert Chain(prompt).key == Chain([*prompt, 7], "acme").key == hash(tuple(range(32)))
    assert len({Chain(tokens).key for tokens in ([], [1], [2], prompt)}) == 4


def test_the_last_token_is_always_computed() -> None:
    """So of a prompt that ends with a block that block cannot be saved."""
    assert [Chain(range(length)).count_reusable(32) for length in (0, 1, 32, 33, 64, 65)] == [0, 0, 0, 1, 1, 2]


def test_hashes_do_not_collide() -> None:
    """Not even those of blocks that differ by little."""
    chains = [Chain([first, second, *range(30)]) for first in range(300) for second in range(300)]
    assert len({block for chain in chains for block in chain.blocks(32)}) == 90_000

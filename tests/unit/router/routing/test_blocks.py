"""Which workers hold which blocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.routing.blocks import BlockTable

A, B, C = 1, 2, 4


def find(table: BlockTable, hashes: list[int], holders: int = A | B | C) -> dict[int, int]:
    """Blocks from the first on by holder."""
    return {bit: number for mask, number in table.match(hashes, holders) for bit in (A, B, C) if mask & bit}


def test_each_holders_longest_prefix_is_found() -> None:
    """In one pass, to the first block that it has not."""
    table = BlockTable()
    table.put(A, [1, 2, 3], 10)
    table.put(B, [1, 2, 4], 10)
    assert find(table, [1, 2, 3, 5]) == {A: 3, B: 2, C: 0}
    assert find(table, [1, 2]) == {A: 2, B: 2, C: 0}
    assert find(table, [2]) == {A: 1, B: 1, C: 0}
    assert find(table, []) == {A: 0, B: 0, C: 0}
    assert find(table, [1], B) == {B: 1}


def test_blocks_before_the_first_that_is_held_are_counted() -> None:
    """The opposite question, for blocks that are known to be gone."""
    table = BlockTable()
    table.put(A, [3], 10)
    table.put(B, [1], 10)
    assert sorted(table.match_none([1, 2, 3, 4], A | B | C)) == [(A, 2), (B, 0), (C, 4)]
    assert list(table.match_none([], A)) == [(A, 0)]


def test_the_end_of_the_oldest_chain_goes_first() -> None:
    """A beginning outlives what continues it, as in the engine."""
    table = BlockTable()
    table.put(A, [1, 2, 3], 4)
    table.put(A, [1, 9], 4)
    assert find(table, [1, 2, 3])[A] == 3
    table.put(A, [7], 4)
    assert find(table, [1, 2, 3])[A] == 2
    assert find(table, [1, 9])[A] == 2


def test_new_blocks_are_counted() -> None:
    """Those that the holder had not."""
    table = BlockTable()
    assert table.put(A, [1, 2, 3], 10) == 3
    assert table.put(A, [1, 2, 4], 10) == 1
    assert table.put(B, [1], 10) == 1


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["put", "discard", "drop", "trim"]), st.sampled_from([A, B, C]), st.lists(st.integers(0, 12), max_size=6)
        ),
        max_size=40,
    )
)
def test_both_views_agree(steps: list[tuple[str, int, list[int]]]) -> None:
    """Whatever happens, a block's mask names exactly those who hold it, nobody holds more than the capacity, and no empty mask is kept."""
    table = BlockTable()
    for name, holder, blocks in steps:
        match name:
            case "put":
                table.put(holder, list(dict.fromkeys(blocks)), 5)
            case "trim":
                table.trim(holder, len(blocks))
            case "drop":
                table.drop(holder)
            case "discard":
                for block in blocks:
                    table.discard(holder, block)
    held = {(holder, block) for holder in (A, B, C) for block in range(13) if find(table, [block])[holder]}
    assert [sum(it == holder for it, _ in held) for holder in (A, B, C)] == [table.count(holder) for holder in (A, B, C)]
    assert all(table.count(holder) <= 5 for holder in (A, B, C))
    assert len(table) == len({block for _, block in held})

"""Which workers hold which blocks.

For each block a bit mask of its holders, so that one pass over a prompt's hashes finds every worker's longest prefix; for each worker its
blocks from least to most recently used. A chain is used from its end to its beginning, so a block is never older than those after it: what
goes first are ends of chains, as in the engines, which free no block that another continues.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence


class BlockTable:
    """Blocks by holder. A holder is a bit: an int with one bit set."""

    def __init__(self) -> None:
        self._masks: dict[int, int] = {}
        self._blocks: dict[int, OrderedDict[int, None]] = {}

    def __len__(self) -> int:
        return len(self._masks)

    def match(self, hashes: Iterable[int], holders: int) -> Iterator[tuple[int, int]]:
        """How many blocks from the first on each of `holders` has: pairs of a mask and the number that those have."""
        number, masks = 0, self._masks
        for number, block in enumerate(hashes, 1):
            left = holders & masks.get(block, 0)
            if left != holders:
                yield holders ^ left, number - 1
                holders = left
                if not holders:
                    return
        yield holders, number

    def match_none(self, hashes: Iterable[int], holders: int) -> Iterator[tuple[int, int]]:
        """How many blocks from the first on are ones that the holder has not, as `match`."""
        number, masks = 0, self._masks
        for number, block in enumerate(hashes, 1):
            if found := holders & masks.get(block, 0):
                yield found, number - 1
                holders ^= found
                if not holders:
                    return
        yield holders, number

    def put(self, holder: int, hashes: Sequence[int], capacity: int) -> int:
        """A holder has just used these blocks of a chain, and keeps the `capacity` it last used. Returns how many are new to it."""
        blocks = self._blocks.setdefault(holder, OrderedDict())
        masks, before = self._masks, len(blocks)
        for block in reversed(hashes[:capacity]):
            if block in blocks:
                blocks.move_to_end(block)
            else:
                blocks[block] = None
                masks[block] = masks.get(block, 0) | holder
        new = len(blocks) - before
        self.trim(holder, capacity)
        return new

    def trim(self, holder: int, capacity: int) -> None:
        """Forgets the least recently used blocks beyond the capacity."""
        blocks = self._blocks.get(holder, OrderedDict())
        while len(blocks) > capacity:
            self._unmark(holder, blocks.popitem(last=False)[0])

    def discard(self, holder: int, block: int) -> None:
        """The holder has it no more; nothing when it had not."""
        blocks = self._blocks.get(holder)
        if blocks and block in blocks:
            del blocks[block]
            self._unmark(holder, block)

    def drop(self, holder: int) -> None:
        """Forgets all blocks of a holder."""
        for block in self._blocks.pop(holder, ()):
            self._unmark(holder, block)

    def count(self, holder: int) -> int:
        """How many blocks a holder has."""
        return len(self._blocks.get(holder, ()))

    def _unmark(self, holder: int, block: int) -> None:
        left = self._masks[block] & ~holder
        if left:
            self._masks[block] = left
        else:
            del self._masks[block]

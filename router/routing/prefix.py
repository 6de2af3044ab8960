"""Which part of a prompt each worker has in its KV cache: the router's guess, corrected by what the workers tell.

Theory of operation. What a worker computes it keeps, until it needs the room: so the index notes the blocks of every turn that is sent to a
worker, and forgets the least recently used beyond what the worker's cache holds. Three things correct it:

- The worker reports, with each turn's end, how many prompt tokens were cached. Fewer than guessed means that it forgets sooner than
  thought, because others use its cache too or running turns fill it: the index keeps a tenth less for it. More means the opposite.
- A worker that sends KV events tells exactly which blocks it stored and which it removed, whoever asked for them.
- A worker that is lost has lost its cache.

Prefixes are kept apart by salt (a tenant): nobody's prompt is expected to be cached because somebody else's was, for a worker that shares
blocks between tenants tells each of them what the others asked. Events do not say whose a block is; a worker that keeps tenants apart
stores one for each, of the same tokens and under different names. So a stored block is noted as everybody's, and one of which the last is
removed, by its bare hash, among those that are gone: salted prefixes end before the first of these.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from router.routing.blocks import BlockTable
from router.routing.chain import ROOT, Chain, hash_blocks
from router.routing.kv_events import Removed, Stored, read_kv_events

_SMALLER, _LARGER, _LEAST = 0.9, 1.1, 1 / 16
_TURNOVER = 1 / 64
_ERROR_RATE = 0.05


@dataclass(slots=True)
class _Cache:
    """One worker's cache; `room` is how many blocks of it the index keeps, `fresh` how many came since it last shrank.

    `names` are the worker's, with the blocks that they are for; `copies` how many names a block has.
    """

    bit: int
    block_tokens: int
    blocks: int
    room: int
    fresh: int = 0
    error: float = 0.0
    exact: bool = False
    names: OrderedDict[Hashable, int] = field(default_factory=OrderedDict)
    copies: Counter[int] = field(default_factory=Counter)

    def name(self, name: Hashable, block: int) -> None:
        """The worker has a block under a name; of more than it has room for the oldest names are forgotten."""
        self.unname(name)
        self.names[name] = block
        self.copies[block] += 1
        if len(self.names) > self.blocks:
            self.unname(next(iter(self.names)))

    def unname(self, name: Hashable) -> int | None:
        """Forgets a name; gives its block when it has no other."""
        block = self.names.pop(name, None)
        if block is None:
            return None
        self.copies[block] -= 1
        if self.copies[block]:
            return None
        del self.copies[block]
        return block


class PrefixIndex:
    """The prefixes in the caches of one model's workers. A worker is any unique name; those that have not joined have no prefixes."""

    def __init__(self) -> None:
        self._caches: dict[str, _Cache] = {}
        self._used = BlockTable()
        self._gone = BlockTable()

    def join(self, worker: str, block_tokens: int, blocks: int) -> None:
        """A worker is there, its cache is empty, and it has this many blocks of so many tokens."""
        self.leave(worker)
        taken = {cache.bit for cache in self._caches.values()}
        bit = next(1 << at for at in range(len(taken) + 1) if 1 << at not in taken)
        self._caches[worker] = _Cache(bit, block_tokens, blocks, blocks)

    def leave(self, worker: str) -> None:
        """Forgets a worker. Takes about 0.2 µs for each block."""
        if cache := self._caches.pop(worker, None):
            self._used.drop(cache.bit)
            self._gone.drop(cache.bit)

    def match(self, chain: Chain) -> dict[str, int]:
        """How many tokens of the prompt each worker is expected to have cached."""
        found = dict.fromkeys(self._caches, 0)
        for size in {cache.block_tokens for cache in self._caches.values()}:
            caches = {cache.bit: worker for worker, cache in self._caches.items() if cache.block_tokens == size}
            for bit, blocks in self._match_blocks(chain, size, caches):
                found[caches[bit]] = blocks * size
        return found

    def insert(self, worker: str, chain: Chain) -> None:
        """A worker has been sent these tokens, or has produced the last of them, and keeps their blocks."""
        if (cache := self._caches.get(worker)) is None:
            return
        cache.fresh += self._used.put(cache.bit, chain.blocks(cache.block_tokens), cache.room)
        if cache.exact and not chain.is_shared:
            for block in chain.content(cache.block_tokens):
                self._gone.discard(cache.bit, block)

    def observe(self, worker: str, guessed: int, reported: int) -> None:
        """A turn for which `guessed` cached tokens were expected has ended; the worker reported so many."""
        if (cache := self._caches.get(worker)) is None:
            return
        off = (guessed - reported) / cache.block_tokens
        cache.error += _ERROR_RATE * (abs(off) - cache.error)
        # Only when new blocks came since: turns that were sent at once and could not yet use each other's blocks say nothing of room.
        if abs(off) > 1 and cache.fresh > cache.room * _TURNOVER and not cache.exact:
            self._resize(cache, _SMALLER if off > 0 else _LARGER)

    def take_events(self, worker: str, events: Iterable[Mapping[str, Any]]) -> None:
        """A worker's KV cache events, oldest first. Lost ones heal with time: what is gone unnoticed is used no more, and so forgotten."""
        if (cache := self._caches.get(worker)) is None:
            return
        cache.exact = True
        for event in read_kv_events(events):
            if isinstance(event, Stored):
                self._store(cache, event)
            else:
                self._remove(cache, event)

    def read_error(self, worker: str) -> float:
        """By how many blocks the guesses for a worker were off lately, on average; 0 for an unknown one."""
        cache = self._caches.get(worker)
        return cache.error if cache else 0.0

    def _resize(self, cache: _Cache, factor: float) -> None:
        full = self._used.count(cache.bit) if factor < 1 else cache.room
        cache.room = min(cache.blocks, max(int(cache.blocks * _LEAST), int(min(cache.room, full) * factor), 1))
        cache.fresh = 0
        self._used.trim(cache.bit, cache.room)

    def _match_blocks(self, chain: Chain, size: int, caches: Mapping[int, str]) -> Iterator[tuple[int, int]]:
        most = chain.count_reusable(size)
        used = _spread(self._used.match(chain.blocks(size)[:most], sum(caches)))
        exact = 0 if chain.is_shared else sum(bit for bit in caches if self._caches[caches[bit]].exact)
        there = dict(_spread(self._gone.match_none(chain.content(size)[:most], exact))) if exact else {}
        return ((bit, min(blocks, there.get(bit, blocks))) for bit, blocks in used)

    def _store(self, cache: _Cache, event: Stored) -> None:
        parent = ROOT if event.parent is None else cache.names.get(event.parent)
        if parent is None:  # it follows a block from before this router came
            return
        stored = []
        for name, tokens in event.blocks:
            if len(tokens) != cache.block_tokens:
                break
            (parent,) = hash_blocks(tokens, cache.block_tokens, parent)
            cache.name(name, parent)
            stored.append(parent)
        self._used.put(cache.bit, stored, cache.room)
        for block in stored:
            self._gone.discard(cache.bit, block)

    def _remove(self, cache: _Cache, event: Removed) -> None:
        for name in event.names:
            if (block := cache.unname(name)) is not None:
                self._used.discard(cache.bit, block)
                self._gone.put(cache.bit, [block], cache.blocks)


def _spread(matches: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Each holder of a mask by itself."""
    for holders, blocks in matches:
        mask = holders
        while mask:
            bit = mask & -mask
            yield bit, blocks
            mask ^= bit
